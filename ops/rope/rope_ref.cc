#include <cmath>

#include "espalier/ops/rope/internal/kernels.h"

namespace espalier::rope {

void Ref(const Args& args, const Exec&) {
  const int64_t heads = args.x.dim(1);
  const int64_t width = args.x.dim(2);
  const int64_t pairs = args.frequencies.dim(0);
  for (int64_t t = 0; t < args.x.dim(0); ++t) {
    const double position = args.positions.data<const int32_t>()[t];
    for (int64_t n = 0; n < heads; ++n) {
      const int64_t offset = (t * heads + n) * width;
      const double* x = args.x.data<const double>() + offset;
      double* y = args.y.data<double>() + offset;
      for (int64_t c = 2 * pairs; c < width; ++c) y[c] = x[c];
      for (int64_t i = 0; i < pairs; ++i) {
        const double angle =
            position * args.frequencies.data<const double>()[i];
        const double cosine = std::cos(angle) * args.attention_factor;
        const double sine =
            std::sin(angle) * args.attention_factor * (args.backward ? -1 : 1);
        const int64_t a = args.interleaved ? 2 * i : i;
        const int64_t b = args.interleaved ? 2 * i + 1 : i + pairs;
        const double xa = x[a];
        const double xb = x[b];
        y[a] = xa * cosine - xb * sine;
        y[b] = xb * cosine + xa * sine;
      }
    }
  }
}

}  // namespace espalier::rope
