#ifndef ESPALIER_OPS_L2_NORM_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_L2_NORM_INTERNAL_KERNELS_H_

#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::l2_norm {

struct ForwardArgs {
  View x;  // [rows, D]
  double eps;
  View y;     // [rows, D]
  View rsum;  // [rows] f32, f64 for f64: 1 / sqrt(sum + eps)
};

struct BackwardArgs {
  View dy, x;  // [rows, D]
  View rsum;   // [rows]
  View dx;     // [rows, D]
};

void ForwardRef(const ForwardArgs& args, const Exec& exec);
void BackwardRef(const BackwardArgs& args, const Exec& exec);
// T: float, BFloat16.
template <typename T>
void ForwardCpu(const ForwardArgs& args, const Exec& exec);
template <typename T>
void BackwardCpu(const BackwardArgs& args, const Exec& exec);

}  // namespace espalier::l2_norm

#endif  // ESPALIER_OPS_L2_NORM_INTERNAL_KERNELS_H_
