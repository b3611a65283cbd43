#ifndef ESPALIER_OPS_SOFTMAX_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_SOFTMAX_INTERNAL_KERNELS_H_

#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::softmax {

struct ForwardArgs {
  View x, y;     // [T, H]
  View scratch;  // [threads, H] f32; unused for f64
};
struct BackwardArgs {
  View dy, y, dx;  // [T, H]
};

void ForwardRef(const ForwardArgs& args, const Exec& exec);
void BackwardRef(const BackwardArgs& args, const Exec& exec);
// T: float, BFloat16.
template <typename T>
void ForwardCpu(const ForwardArgs& args, const Exec& exec);
template <typename T>
void BackwardCpu(const BackwardArgs& args, const Exec& exec);

}  // namespace espalier::softmax

#endif  // ESPALIER_OPS_SOFTMAX_INTERNAL_KERNELS_H_
