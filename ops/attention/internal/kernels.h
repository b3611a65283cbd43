#ifndef ESPALIER_OPS_ATTENTION_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_ATTENTION_INTERNAL_KERNELS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::attention {

// Which keys a token sees, and the scale of the scores.
struct Mask {
  bool causal = true;
  int64_t window = 0;
  double scale = 1;
  double soft_cap = 0;

  // The keys [begin, end) that token t sees of its document [doc_begin,
  // doc_end). Never empty.
  int64_t KeyBegin(int64_t t, int64_t doc_begin) const {
    return window > 0 ? std::max(doc_begin, t - window + 1) : doc_begin;
  }
  int64_t KeyEnd(int64_t t, int64_t doc_end) const {
    if (causal) return t + 1;
    return window > 0 ? std::min(doc_end, t + window) : doc_end;
  }
};

struct ForwardArgs {
  View q;      // [T, N, Dqk]
  View k;      // [T, G, Dqk]
  View v;      // [T, G, Dv]
  View sinks;  // [N] q's dtype or f32 (f64 for f64), may be absent
  std::shared_ptr<const std::vector<int32_t>> cu_seqlens;
  Mask mask;
  View o;    // [T, N, Dv]
  View lse;  // [N, T] f32 (f64 for f64)
};

struct BackwardArgs {
  View dout, q, k, v, sinks, o, lse;
  std::shared_ptr<const std::vector<int32_t>> cu_seqlens;
  Mask mask;
  View dq, dk, dv, dsinks;  // each may be absent; dsinks as sinks
};

void ForwardRef(const ForwardArgs& args, const Exec& exec);
void BackwardRef(const BackwardArgs& args, const Exec& exec);
void ForwardCpuF32(const ForwardArgs& args, const Exec& exec);
void ForwardCpuBF16(const ForwardArgs& args, const Exec& exec);
void BackwardCpuF32(const BackwardArgs& args, const Exec& exec);
void BackwardCpuBF16(const BackwardArgs& args, const Exec& exec);

}  // namespace espalier::attention

#endif  // ESPALIER_OPS_ATTENTION_INTERNAL_KERNELS_H_
