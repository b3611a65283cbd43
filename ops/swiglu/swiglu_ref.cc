#include "espalier/ops/swiglu/internal/kernels.h"

namespace espalier::swiglu {

void ForwardRef(const ForwardArgs& args, const Exec&) {
  const double* gate = args.gate.data<const double>();
  const double* up = args.up.data<const double>();
  double* y = args.y.data<double>();
  for (int64_t i = 0; i < args.y.num_elements(); ++i) {
    y[i] = ActivationAt(args.activation, gate[i]).value * up[i];
  }
}

void BackwardRef(const BackwardArgs& args, const Exec&) {
  const double* dy = args.dy.data<const double>();
  const double* gate = args.gate.data<const double>();
  const double* up = args.up.data<const double>();
  for (int64_t i = 0; i < args.dy.num_elements(); ++i) {
    const ActivationPoint point = ActivationAt(args.activation, gate[i]);
    if (args.dgate) {
      args.dgate.data<double>()[i] = dy[i] * up[i] * point.slope;
    }
    if (args.dup) args.dup.data<double>()[i] = dy[i] * point.value;
  }
}

}  // namespace espalier::swiglu
