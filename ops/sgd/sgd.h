#ifndef ESPALIER_OPS_SGD_SGD_H_
#define ESPALIER_OPS_SGD_SGD_H_

#include "espalier/runtime/tensor.h"

namespace espalier {

struct SgdUpdate {
  double learning_rate = 0;
  double momentum = 0;
  bool nesterov = false;  // arXiv:1308.0850; needs momentum
  double weight_decay = 0;
  double gradient_scale = 1;  // gradients are multiplied by it first
};

// One step of gradient descent, in place, element by element:
//   g = gradient_scale * gradient
//   b = momentum * b + g                          b starts at 0
//   p = (1 - lr * weight_decay) p - lr * d
//     d = g without momentum, g + momentum * b with nesterov, b otherwise
// Weight decay is decoupled (arXiv:1711.05101), apart from that as
// torch.optim.SGD with dampening 0.
//   p, gradient, b: same shape, f32 (or all f64), contiguous; b is absent
//   exactly when momentum is 0
// Fails: INTERNAL on shape or dtype mismatch.
void Sgd(const Tensor& parameter, const Tensor& gradient,
         const Tensor& momentum_buffer, const SgdUpdate& update);

}  // namespace espalier

#endif  // ESPALIER_OPS_SGD_SGD_H_
