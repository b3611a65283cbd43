#ifndef ESPALIER_OPS_ADAMW_ADAMW_H_
#define ESPALIER_OPS_ADAMW_ADAMW_H_

#include <cstdint>

#include "espalier/runtime/tensor.h"

namespace espalier {

struct AdamWUpdate {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double gradient_scale = 1;  // gradients are multiplied by it first
  int64_t step = 1;           // from 1, for the bias correction
};

// One AdamW step (arXiv:1711.05101), in place, element by element:
//   g = gradient_scale * gradient
//   m = beta1 m + (1 - beta1) g       v = beta2 v + (1 - beta2) g^2
//   p = (1 - lr * weight_decay) p
//       - lr * (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps)
//   p, gradient, m, v: same shape, f32 (or all f64), contiguous
// With `bf16_copy`, of the same shape, the new parameter is also written there,
// rounded to bf16: the working copy of an f32 master.
// Fails: INTERNAL on shape or dtype mismatch.
void AdamW(const Tensor& parameter, const Tensor& gradient,
           const Tensor& first_moment, const Tensor& second_moment,
           const AdamWUpdate& update, const Tensor& bf16_copy = Tensor());

}  // namespace espalier

#endif  // ESPALIER_OPS_ADAMW_ADAMW_H_
