#ifndef ESPALIER_OPS_ATTENTION_ATTENTION_H_
#define ESPALIER_OPS_ATTENTION_ATTENTION_H_

#include <cstdint>
#include <optional>

#include "espalier/autograd/variable.h"
#include "espalier/ops/cu_seqlens.h"

namespace espalier {

struct AttentionOptions {
  CuSeqlens cu_seqlens;
  // Token t sees keys up to itself; else all keys of its document.
  bool causal = true;
  // Token t sees key j only if |t - j| < window; 0: no limit.
  int64_t window = 0;
  // Of the scores; none: 1 / sqrt(Dqk).
  std::optional<double> scale;
  // c > 0: scores become c * tanh(score / c), as in Gemma 2. 0: off.
  double soft_cap = 0;
};

// Softmax attention inside each document of a packed batch, with grouped
// key/value heads: head n reads key/value head n / (N / G).
//   s[t,n,j] = scale * dot(q[t,n,:], k[j,g,:]), capped, over the keys j seen
//   p[t,n,j] = exp(s[t,n,j]) / (sum_j exp(s[t,n,j]) + exp(sinks[n]))
//   o[t,n,:] = sum_j p[t,n,j] v[j,g,:]
//   q [T, N, Dqk] f64 | f32 | bf16, N and Dqk > 0   k [T, G, Dqk], v [T, G, Dv]
//   same dtype
//   sinks [N] same dtype, or f32 for bf16; optional (gpt-oss: they only enlarge
//   the denominator)   returns [T, N, Dv]
// Online softmax over tiles (arXiv:2205.14135): no [T, T] anywhere. Scores and
// sums are f32 (f64 for f64); for bf16 the probabilities, and in backward the
// score gradients, are rounded to bf16 before they are multiplied. Saves q, k,
// v, sinks, o and the log of the denominator [N, T]. Differentiable in q, k, v
// and sinks. A document's results do not depend on the others.
// Fails: INTERNAL on shapes, dtypes, head counts or boundaries that do not fit.
Variable Attention(const Variable& q, const Variable& k, const Variable& v,
                   const AttentionOptions& options,
                   const Variable& sinks = Variable());

}  // namespace espalier

#endif  // ESPALIER_OPS_ATTENTION_ATTENTION_H_
