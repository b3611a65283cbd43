#ifndef ESPALIER_OPS_ROPE_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_ROPE_INTERNAL_KERNELS_H_

#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::rope {

struct TableArgs {
  View positions;    // [T] i32 or i64
  View frequencies;  // [pairs] f64
  double attention_factor;
  View turns;  // [T, 2, pairs] f32 or f64
};

struct TurnArgs {
  View x;      // [T, N, D]
  View turns;  // [T, 2, pairs] f32, f64 for f64
  bool interleaved;
  bool backward;  // turns the other way
  View y;         // [T, N, D]
};

// T: float, double.
template <typename T>
void MakeTable(const TableArgs& args, const Exec& exec);
void TurnRef(const TurnArgs& args, const Exec& exec);
// T: float, BFloat16.
template <typename T>
void TurnCpu(const TurnArgs& args, const Exec& exec);

}  // namespace espalier::rope

#endif  // ESPALIER_OPS_ROPE_INTERNAL_KERNELS_H_
