#include <cmath>

#include "espalier/ops/rope/internal/kernels.h"
#include "espalier/ops/split.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::rope {

template <typename T>
void MakeTable(const TableArgs& args, const Exec& exec) {
  const int64_t pairs = args.frequencies.dim(0);
  const double* frequencies = args.frequencies.data<const double>();
  // A cosine and a sine cost as much as some 30 plain elements.
  const int64_t grain = RowGrain(60 * pairs);
  exec.pool.ParallelFor(
      args.positions.dim(0), grain, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          const auto position = static_cast<double>(
              args.positions.dtype == kI64
                  ? args.positions.data<const int64_t>()[t]
                  : args.positions.data<const int32_t>()[t]);
          T* cosine = args.turns.data<T>() + t * 2 * pairs;
          T* sine = cosine + pairs;
          for (int64_t i = 0; i < pairs; ++i) {
            const double angle = position * frequencies[i];
            cosine[i] = static_cast<T>(std::cos(angle) * args.attention_factor);
            sine[i] = static_cast<T>(std::sin(angle) * args.attention_factor);
          }
        }
      });
}

template void MakeTable<float>(const TableArgs& args, const Exec& exec);
template void MakeTable<double>(const TableArgs& args, const Exec& exec);

void TurnRef(const TurnArgs& args, const Exec&) {
  const int64_t heads = args.x.dim(1);
  const int64_t width = args.x.dim(2);
  const int64_t pairs = args.turns.dim(2);
  for (int64_t t = 0; t < args.x.dim(0); ++t) {
    const double* cosine = args.turns.data<const double>() + t * 2 * pairs;
    const double* sine = cosine + pairs;
    for (int64_t n = 0; n < heads; ++n) {
      const int64_t offset = (t * heads + n) * width;
      const double* x = args.x.data<const double>() + offset;
      double* y = args.y.data<double>() + offset;
      for (int64_t c = 2 * pairs; c < width; ++c) y[c] = x[c];
      for (int64_t i = 0; i < pairs; ++i) {
        const double s = args.backward ? -sine[i] : sine[i];
        const int64_t a = args.interleaved ? 2 * i : i;
        const int64_t b = args.interleaved ? 2 * i + 1 : i + pairs;
        y[a] = x[a] * cosine[i] - x[b] * s;
        y[b] = x[b] * cosine[i] + x[a] * s;
      }
    }
  }
}

}  // namespace espalier::rope
