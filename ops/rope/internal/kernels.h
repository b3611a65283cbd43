#ifndef ESPALIER_OPS_ROPE_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_ROPE_INTERNAL_KERNELS_H_

#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::rope {

struct Args {
  View x;            // [T, N, D]
  View positions;    // [T] i32
  View frequencies;  // [pairs] f64
  double attention_factor;
  bool interleaved;
  bool backward;  // turns the other way
  View tables;    // [T, 2, pairs] f32, f64 for f64: scratch for cos and sin
  View y;         // [T, N, D]
};

void Ref(const Args& args, const Exec& exec);
void CpuF32(const Args& args, const Exec& exec);
void CpuBF16(const Args& args, const Exec& exec);

}  // namespace espalier::rope

#endif  // ESPALIER_OPS_ROPE_INTERNAL_KERNELS_H_
