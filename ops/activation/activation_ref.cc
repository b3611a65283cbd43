#include "espalier/ops/activation/internal/kernels.h"

namespace espalier::activation {

void ForwardRef(const ForwardArgs& args, const Exec&) {
  const double* x = args.x.data<const double>();
  double* y = args.y.data<double>();
  for (int64_t i = 0; i < args.y.num_elements(); ++i) {
    y[i] = ActivationAt(args.activation, x[i]).value;
  }
}

void BackwardRef(const BackwardArgs& args, const Exec&) {
  const double* dy = args.dy.data<const double>();
  const double* x = args.x.data<const double>();
  double* dx = args.dx.data<double>();
  for (int64_t i = 0; i < args.dx.num_elements(); ++i) {
    dx[i] = dy[i] * ActivationAt(args.activation, x[i]).slope;
  }
}

}  // namespace espalier::activation
