#include <algorithm>

#include "espalier/ops/reduce/internal/kernels.h"

namespace espalier::reduce {

void SumRef(const SumArgs& args, const Exec&) {
  const double* x = args.x.data<const double>();
  double sum = 0;
  for (int64_t i = 0; i < args.x.num_elements(); ++i) sum += x[i];
  *args.y.data<double>() = args.factor * sum;
}

void FillRef(const FillArgs& args, const Exec&) {
  double* dx = args.dx.data<double>();
  std::fill(dx, dx + args.dx.num_elements(),
            args.factor * *args.dy.data<const double>());
}

}  // namespace espalier::reduce
