#ifndef ESPALIER_OPS_SGD_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_SGD_INTERNAL_KERNELS_H_

#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::sgd {

struct Args {
  View parameter, gradient;
  View buffer;  // may be absent
  double learning_rate, momentum, gradient_scale;
  double decay;  // 1 - lr * weight_decay
  bool nesterov;
};

void Ref(const Args& args, const Exec& exec);
void CpuF32(const Args& args, const Exec& exec);

}  // namespace espalier::sgd

#endif  // ESPALIER_OPS_SGD_INTERNAL_KERNELS_H_
