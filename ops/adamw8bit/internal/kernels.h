#ifndef ESPALIER_OPS_ADAMW8BIT_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_ADAMW8BIT_INTERNAL_KERNELS_H_

#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::adamw8bit {

struct Args {
  View parameter, gradient;
  View m_codes, v_codes, m_scales, v_scales;
  double beta1, beta2, eps, gradient_scale;
  double decay;      // 1 - lr * weight_decay
  double step_size;  // lr / (1 - beta1^step)
  double v_scale;    // 1 / sqrt(1 - beta2^step)
};

// Plain loops on f64 inside, f32 outside: what Cpu is tested on.
void Ref(const Args& args, const Exec& exec);
void Cpu(const Args& args, const Exec& exec);

}  // namespace espalier::adamw8bit

#endif  // ESPALIER_OPS_ADAMW8BIT_INTERNAL_KERNELS_H_
