#include "espalier/ops/packed_matmul/internal/kernels.h"

namespace espalier::packed {

void LinearRef(const LinearArgs& args, const Exec&) {
  const bool forward = args.direction == Direction::kForward;
  const int64_t num_rows = args.x.dim(0);
  const int64_t num_k = args.x.dim(1);
  const int64_t num_columns = args.y.dim(1);
  const auto* x = args.x.data<double>();
  auto* y = args.y.data<double>();
  for (int64_t i = 0; i < num_rows * num_columns; ++i) {
    y[i] = args.bias ? args.bias.data<const double>()[i % num_columns] : 0;
    if (args.beta != 0) {
      y[i] += args.beta * args.addend.data<const double>()[i];
    }
  }
  for (int64_t n = 0; n < num_columns; ++n) {
    for (int64_t k = 0; k < num_k; ++k) {
      const double w =
          args.alpha * (forward ? DecodeElement(args.weight, n, k)
                                : DecodeElement(args.weight, k, n));
      for (int64_t t = 0; t < num_rows; ++t) {
        y[t * num_columns + n] += x[t * num_k + k] * w;
      }
    }
  }
}

}  // namespace espalier::packed
