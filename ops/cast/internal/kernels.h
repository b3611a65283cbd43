#ifndef ESPALIER_OPS_CAST_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_CAST_INTERNAL_KERNELS_H_

#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::cast {

struct Args {
  View x, y;  // same shape, contiguous
};

// Any floating dtype to any other, one element at a time.
void Ref(const Args& args, const Exec& exec);
void CpuF32ToBF16(const Args& args, const Exec& exec);
void CpuBF16ToF32(const Args& args, const Exec& exec);

}  // namespace espalier::cast

#endif  // ESPALIER_OPS_CAST_INTERNAL_KERNELS_H_
