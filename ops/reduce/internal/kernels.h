#ifndef ESPALIER_OPS_REDUCE_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_REDUCE_INTERNAL_KERNELS_H_

#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::reduce {

struct SumArgs {
  View x;  // contiguous
  double factor;
  View pieces;  // one f32 per kPointwiseGrain elements; unused for f64
  View y;       // [] factor * sum, f32, f64 for f64
};
struct FillArgs {
  View dy;  // [] f32, f64 for f64
  double factor;
  View dx;  // factor * dy everywhere
};

void SumRef(const SumArgs& args, const Exec& exec);
void FillRef(const FillArgs& args, const Exec& exec);
// T: float, BFloat16.
template <typename T>
void SumCpu(const SumArgs& args, const Exec& exec);
template <typename T>
void FillCpu(const FillArgs& args, const Exec& exec);

}  // namespace espalier::reduce

#endif  // ESPALIER_OPS_REDUCE_INTERNAL_KERNELS_H_
