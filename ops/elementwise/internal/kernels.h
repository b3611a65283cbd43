#ifndef ESPALIER_OPS_ELEMENTWISE_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_ELEMENTWISE_INTERNAL_KERNELS_H_

#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::elementwise {

// All tensors contiguous. b may be one row [H] for a [.., H].
struct AddScaledArgs {
  View a, b;
  double factor;
  View y;  // a + factor * b
};
struct MulArgs {
  View a, b, y;
};
struct ScaleArgs {
  View x;
  double factor;
  View y;
};

// sum[h] = sum over rows of a[.,h] * b[.,h], or of a alone when b is absent.
struct ColumnSumArgs {
  View a, b;        // [.., H]
  View sum;         // [H]
  View block_sums;  // [NumBlocks(rows), H] f32, f64 for f64
};

void AddScaledRef(const AddScaledArgs& args, const Exec& exec);
void MulRef(const MulArgs& args, const Exec& exec);
void ScaleRef(const ScaleArgs& args, const Exec& exec);
void ColumnSumRef(const ColumnSumArgs& args, const Exec& exec);
// T: float, BFloat16.
template <typename T>
void AddScaledCpu(const AddScaledArgs& args, const Exec& exec);
template <typename T>
void MulCpu(const MulArgs& args, const Exec& exec);
template <typename T>
void ScaleCpu(const ScaleArgs& args, const Exec& exec);
template <typename T>
void ColumnSumCpu(const ColumnSumArgs& args, const Exec& exec);

}  // namespace espalier::elementwise

#endif  // ESPALIER_OPS_ELEMENTWISE_INTERNAL_KERNELS_H_
