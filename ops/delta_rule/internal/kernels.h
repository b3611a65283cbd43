#ifndef ESPALIER_OPS_DELTA_RULE_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_DELTA_RULE_INTERNAL_KERNELS_H_

#include <cstdint>
#include <memory>

#include "espalier/ops/cu_seqlens.h"
#include "espalier/ops/delta_rule/internal/plan.h"
#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::delta_rule {

struct ForwardArgs {
  View q, k;     // [T, G, K]
  View v;        // [T, N, V]
  View g;        // [T, N, K] or [T, N]: f32, f64 for f64
  View beta;     // [T, N] the same
  View initial;  // [documents, N, K, V] the same, may be absent
  CuSeqlens cu_seqlens;
  double scale;
  View o;            // [T, N, V]
  View final_state;  // as initial, may be absent
  // f64: [scratch]; else u8 [threads of the pool, plan->slot_bytes].
  View slots;
  // Not for f64:
  View states = {};  // [plan->num_states, N, K, V] f32, may be absent
  std::shared_ptr<const Plan> plan = {};
};

struct BackwardArgs {
  View dout;    // [T, N, V]
  View dfinal;  // [documents, N, K, V], may be absent
  View q, k, v, g, beta, initial;
  CuSeqlens cu_seqlens;
  double scale;
  View dq, dk, dv, dg, dbeta, dinitial;  // each may be absent
  View slots;
  // Not for f64:
  View states = {};
  std::shared_ptr<const Plan> plan = {};
  // [T, G, K] f32, present when groups have several heads.
  View dq_sum = {}, dk_sum = {};
};

// f64 elements of scratch.
int64_t ForwardRefScratch(const Sizes& sizes);
int64_t BackwardRefScratch(const Sizes& sizes, int64_t longest_document);
void ForwardRef(const ForwardArgs& args, const Exec& exec);
void BackwardRef(const BackwardArgs& args, const Exec& exec);
// f32 and bf16.
void ForwardCpu(const ForwardArgs& args, const Exec& exec);
void BackwardCpu(const BackwardArgs& args, const Exec& exec);
void TokenForwardCpu(const ForwardArgs& args, const Exec& exec);

}  // namespace espalier::delta_rule

#endif  // ESPALIER_OPS_DELTA_RULE_INTERNAL_KERNELS_H_
