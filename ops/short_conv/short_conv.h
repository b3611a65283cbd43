#ifndef ESPALIER_OPS_SHORT_CONV_SHORT_CONV_H_
#define ESPALIER_OPS_SHORT_CONV_SHORT_CONV_H_

#include "espalier/autograd/variable.h"
#include "espalier/ops/cu_seqlens.h"

namespace espalier {

struct ShortConvOptions {
  CuSeqlens cu_seqlens;
  bool silu = true;          // else the sum itself
  bool final_state = false;  // whether it is returned
};

struct ShortConvResult {
  Variable y;            // [T, C]
  Variable final_state;  // [documents, K - 1, C], absent unless asked for
};

// Causal depthwise convolution over the tokens of each document of a packed
// batch, as kimi_linear, kimi_k3 and qwen3_next use it (width 4, then SiLU):
//   p[t,c] = sum_j weight[c,j] x[t - (K - 1) + j, c];  y = silu(p)
// so the last tap meets the current token. Left of a document are the rows of
// its initial state, the oldest first; zeros when there is none. The final
// state is the last K - 1 rows of state and document together: with it as
// initial state of the next piece, a document cut anywhere gives what it gives
// whole.
//   x [T, C] f64 | f32 | bf16   weight [C, 1, K] or [C, K], 1 <= K <= 8, x's
//   dtype, or f32 for bf16   initial_state [documents, K - 1, C] x's dtype, may
//   be absent
// Sums in f32 (f64 for f64), taps in rising order, rounded once. Saves x,
// weight, initial_state. Differentiable in all three, and through the final
// state; the gradient of weight is summed over blocks of 64 tokens in order.
// Fails: INTERNAL on shapes, dtypes or boundaries that do not fit.
ShortConvResult ShortConv(const Variable& x, const Variable& weight,
                          const Variable& initial_state,
                          const ShortConvOptions& options);

}  // namespace espalier

#endif  // ESPALIER_OPS_SHORT_CONV_SHORT_CONV_H_
