#ifndef ESPALIER_OPS_SWIGLU_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_SWIGLU_INTERNAL_KERNELS_H_

#include "espalier/ops/activations.h"
#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::swiglu {

// All of one shape, contiguous.
struct ForwardArgs {
  Activation activation;
  View gate, up, y;
};
struct BackwardArgs {
  Activation activation;
  View dy, gate;
  View up;     // absent without dgate
  View dgate;  // may be absent
  View dup;    // may be absent
};

void ForwardRef(const ForwardArgs& args, const Exec& exec);
void BackwardRef(const BackwardArgs& args, const Exec& exec);
// T: float, BFloat16.
template <typename T>
void ForwardCpu(const ForwardArgs& args, const Exec& exec);
template <typename T>
void BackwardCpu(const BackwardArgs& args, const Exec& exec);

}  // namespace espalier::swiglu

#endif  // ESPALIER_OPS_SWIGLU_INTERNAL_KERNELS_H_
