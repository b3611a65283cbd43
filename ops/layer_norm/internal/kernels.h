#ifndef ESPALIER_OPS_LAYER_NORM_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_LAYER_NORM_INTERNAL_KERNELS_H_

#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::layer_norm {

struct ForwardArgs {
  View x;       // [T, H]
  View weight;  // [H]
  View bias;    // [H], may be absent
  double eps;
  View y;           // [T, H]
  View mean, rstd;  // [T] f32, f64 for f64
};
struct BackwardArgs {
  View dy, x;       // [T, H]
  View weight;      // [H]
  View mean, rstd;  // [T]
  View dx;          // [T, H], may be absent
  View dweight;     // [H], may be absent
  View dbias;       // [H], may be absent
  View block_sums;  // [NumBlocks(T), 2, H] f32, with dweight or dbias; unused
                    // for f64
};

void ForwardRef(const ForwardArgs& args, const Exec& exec);
void BackwardRef(const BackwardArgs& args, const Exec& exec);
// T: float, BFloat16.
template <typename T>
void ForwardCpu(const ForwardArgs& args, const Exec& exec);
template <typename T>
void BackwardCpu(const BackwardArgs& args, const Exec& exec);

}  // namespace espalier::layer_norm

#endif  // ESPALIER_OPS_LAYER_NORM_INTERNAL_KERNELS_H_
