#ifndef ESPALIER_OPS_ATTENTION_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_ATTENTION_INTERNAL_KERNELS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "espalier/ops/attention/internal/plan.h"
#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::attention {

struct ForwardArgs {
  View q;      // [T, N, Dqk]
  View k;      // [T, G, Dqk]
  View v;      // [T, G, Dv]
  View sinks;  // [N] q's dtype or f32 (f64 for f64), may be absent
  std::shared_ptr<const std::vector<int32_t>> cu_seqlens;
  Mask mask;
  View o;    // [T, N, Dv]
  View lse;  // [N, T] f32 (f64 for f64)
  // Not for f64:
  std::shared_ptr<const ForwardPlan> plan = {};
  View slots = {};  // u8 [threads of the pool, plan->slot_bytes]
};

struct BackwardArgs {
  View dout, q, k, v, sinks, o, lse;
  std::shared_ptr<const std::vector<int32_t>> cu_seqlens;
  Mask mask;
  View dq, dk, dv, dsinks;  // each may be absent; dsinks as sinks
  // Not for f64:
  std::shared_ptr<const BackwardPlan> plan = {};
  View slots = {};  // u8 [threads, plan->slot_bytes]
  View delta = {};  // [N, T] f32
  // f32, shaped as and present with dq, dk, dv; the same memory when those are
  // f32.
  View dq_sum = {}, dk_sum = {}, dv_sum = {};
};

void ForwardRef(const ForwardArgs& args, const Exec& exec);
void BackwardRef(const BackwardArgs& args, const Exec& exec);
// f32 and bf16.
void ForwardCpu(const ForwardArgs& args, const Exec& exec);
void BackwardCpu(const BackwardArgs& args, const Exec& exec);

}  // namespace espalier::attention

#endif  // ESPALIER_OPS_ATTENTION_INTERNAL_KERNELS_H_
