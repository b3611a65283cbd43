#ifndef ESPALIER_OPS_KDA_GATE_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_KDA_GATE_INTERNAL_KERNELS_H_

#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::kda_gate {

struct ForwardArgs {
  View f;        // [T, N, K]
  View A_log;    // [N] f32, f64 for f64
  View dt_bias;  // [N * K] the same
  double bound;  // 0: the softplus form
  View g;        // [T, N, K] f32, f64 for f64
  View rates;    // [N * K] f32 scratch; unused for f64
};

struct BackwardArgs {
  View dg;  // [T, N, K] as g
  View f, A_log, dt_bias;
  double bound;
  View df, dA_log, ddt_bias;  // each may be absent
  View rates;                 // [N * K] f32 scratch; unused for f64
  // f32, with dA_log or ddt_bias; unused for f64:
  View block_sums;  // [NumBlocks(T), 2, N * K]: of dz, of what A_log gets
  View sums;        // [N * K]
};

void ForwardRef(const ForwardArgs& args, const Exec& exec);
void BackwardRef(const BackwardArgs& args, const Exec& exec);
// T: float, BFloat16.
template <typename T>
void ForwardCpu(const ForwardArgs& args, const Exec& exec);
template <typename T>
void BackwardCpu(const BackwardArgs& args, const Exec& exec);

}  // namespace espalier::kda_gate

#endif  // ESPALIER_OPS_KDA_GATE_INTERNAL_KERNELS_H_
