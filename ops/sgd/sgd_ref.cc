#include "espalier/ops/sgd/internal/kernels.h"

namespace espalier::sgd {

void Ref(const Args& args, const Exec&) {
  double* p = args.parameter.data<double>();
  const double* gradient = args.gradient.data<const double>();
  double* buffer = args.buffer.data<double>();
  for (int64_t i = 0; i < args.parameter.num_elements(); ++i) {
    const double g = args.gradient_scale * gradient[i];
    double direction = g;
    if (args.buffer) {
      buffer[i] = args.momentum * buffer[i] + g;
      direction = args.nesterov ? g + args.momentum * buffer[i] : buffer[i];
    }
    p[i] = args.decay * p[i] - args.learning_rate * direction;
  }
}

}  // namespace espalier::sgd
