#ifndef ESPALIER_OPS_ACTIVATION_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_ACTIVATION_INTERNAL_KERNELS_H_

#include "espalier/ops/activations.h"
#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::activation {

// All of one shape, contiguous.
struct ForwardArgs {
  Activation activation;
  View x, y;
};
struct BackwardArgs {
  Activation activation;
  View dy, x, dx;
};

void ForwardRef(const ForwardArgs& args, const Exec& exec);
void BackwardRef(const BackwardArgs& args, const Exec& exec);
// T: float, BFloat16.
template <typename T>
void ForwardCpu(const ForwardArgs& args, const Exec& exec);
template <typename T>
void BackwardCpu(const BackwardArgs& args, const Exec& exec);

}  // namespace espalier::activation

#endif  // ESPALIER_OPS_ACTIVATION_INTERNAL_KERNELS_H_
