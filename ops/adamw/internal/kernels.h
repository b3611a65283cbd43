#ifndef ESPALIER_OPS_ADAMW_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_ADAMW_INTERNAL_KERNELS_H_

#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::adamw {

struct Args {
  View parameter, gradient, m, v;
  View bf16_copy;  // may be absent
  double beta1, beta2, eps, gradient_scale;
  double decay;      // 1 - lr * weight_decay
  double step_size;  // lr / (1 - beta1^step)
  double v_scale;    // 1 / sqrt(1 - beta2^step)
};

void Ref(const Args& args, const Exec& exec);
void CpuF32(const Args& args, const Exec& exec);

}  // namespace espalier::adamw

#endif  // ESPALIER_OPS_ADAMW_INTERNAL_KERNELS_H_
