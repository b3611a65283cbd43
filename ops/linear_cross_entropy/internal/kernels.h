#ifndef ESPALIER_OPS_LINEAR_CROSS_ENTROPY_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_LINEAR_CROSS_ENTROPY_INTERNAL_KERNELS_H_

#include <cstdint>

#include "espalier/ops/linear_cross_entropy/internal/plan.h"
#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::linear_cross_entropy {

// "Wide" is f32, f64 for f64.

struct ForwardArgs {
  View x;              // [T, H]
  View weight;         // [V, H]
  View labels;         // [T] i32 or i64
  View token_weights;  // [T] f32, may be absent
  int64_t ignore_index;
  double logit_scale;
  double z_loss;
  View loss;          // [] wide
  View weight_sum;    // [] wide
  View token_losses;  // [T] wide
  View lse;           // [T] wide
  View dx;            // [T, H] wide, for a cotangent of 1; may be absent
  // Not for f64:
  View powers = {};     // as weight; for BackwardArgs, both or none
  View block_max = {};  // [V blocks, T] f32
  Plan plan = {};
  View workspace = {};  // u8 [plan.bytes]
};

// Of a weight that needs a gradient.
struct BackwardArgs {
  View dloss;  // [] wide
  View x, weight, labels, token_weights, lse;
  // Not for f64: of the forward pass, see chunk.h. dweight may be powers.
  View powers, block_max;
  int64_t ignore_index;
  double logit_scale;
  double z_loss;
  View dx;       // [T, H], may be absent
  View dweight;  // [V, H]
  // Not for f64:
  Plan plan = {};
  View workspace = {};  // u8 [plan.bytes]
  View dx_sum = {};     // f32, as dx; the same memory when that is f32
};

// out = scale[0] * in, rounded to out's dtype.
struct ScaleArgs {
  View scale;  // [] wide
  View in;     // [T, H] wide
  View out;    // [T, H]
};

struct LogitsArgs {
  View x, weight;
  double logit_scale;
  View logits;  // [T, V] wide
  // Not for f64:
  View workspace = {};  // u8 [LogitsWorkspaceBytes(...)]
};

inline int64_t LabelAt(const View& labels, int64_t t) {
  return labels.dtype == kI32 ? labels.data<const int32_t>()[t]
                              : labels.data<const int64_t>()[t];
}

// The weight a token counts with: 0 where its label is ignored.
inline float WeightAt(const View& token_weights, int64_t t, bool ignored) {
  if (ignored) return 0;
  return token_weights ? token_weights.data<const float>()[t] : 1;
}

void ForwardRef(const ForwardArgs& args, const Exec& exec);
void BackwardRef(const BackwardArgs& args, const Exec& exec);
void ScaleRef(const ScaleArgs& args, const Exec& exec);
void LogitsRef(const LogitsArgs& args, const Exec& exec);

// f32 and bf16.
void ForwardCpu(const ForwardArgs& args, const Exec& exec);
void BackwardCpu(const BackwardArgs& args, const Exec& exec);
void ScaleCpu(const ScaleArgs& args, const Exec& exec);
void LogitsCpu(const LogitsArgs& args, const Exec& exec);
int64_t LogitsWorkspaceBytes(const LogitsArgs& args, Isa isa);

}  // namespace espalier::linear_cross_entropy

#endif  // ESPALIER_OPS_LINEAR_CROSS_ENTROPY_INTERNAL_KERNELS_H_
