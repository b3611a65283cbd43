#ifndef ESPALIER_OPS_DELTA_RULE_DELTA_RULE_H_
#define ESPALIER_OPS_DELTA_RULE_DELTA_RULE_H_

#include <cstdint>
#include <optional>

#include "espalier/autograd/variable.h"
#include "espalier/ops/cu_seqlens.h"

namespace espalier {

enum class DeltaRuleForm : uint8_t {
  kChunk,  // matrix products over chunks of tokens: training and prefill
  kToken,  // one token after another: decoding
};

struct DeltaRuleOptions {
  CuSeqlens cu_seqlens;
  // Of q; none: 1 / sqrt(K).
  std::optional<double> scale = std::nullopt;
  // Of the forward pass; gradients are always taken in chunks.
  DeltaRuleForm form = DeltaRuleForm::kChunk;
  int64_t chunk = 64;  // tokens: 16, 32 or 64
  // Whether products of bf16 inputs are of f32, too: slower, and o is then
  // off by its own rounding alone.
  bool f32_products = false;
  bool final_state = false;  // whether it is returned
};

struct DeltaRuleResult {
  Variable o;            // [T, N, V]
  Variable final_state;  // [documents, N, K, V], absent unless asked for
};

// Linear attention with a decaying state that the delta rule corrects: Kimi
// Delta Attention (arXiv:2510.26692) with a decay per key channel, the gated
// delta rule (arXiv:2412.06464) of qwen3_next with one per head. Per document
// and head n, with S [K, V] from the initial state or zeros:
//   S   = diag(exp(g[t,n])) S
//   u   = beta[t,n] (v[t,n] - S^T k[t])
//   S  += k[t] u^T
//   o[t,n] = scale S^T q[t]
// Head n reads the query and key of head n / (N / G).
//   q, k [T, G, K], v [T, N, V] f64 | f32 | bf16
//   g [T, N, K] or [T, N], at most 0, beta [T, N], initial_state [documents, N,
//   K, V] (may be absent): f32 (f64 for f64)
// Gates, sums and the state are f32 (f64 for f64). The chunk form (f64: the
// recurrence) multiplies chunks as matrices; operands of products are rounded
// to bf16 for bf16 inputs, unless f32_products. No exponential of a positive
// number is taken, and a token's results do not depend, in any bit, on later
// tokens or on other documents. Saves its inputs and the state at every 256th
// token of a document, [.., N, K, V]. Differentiable in all inputs, and through
// the final state.
// Fails: INTERNAL on shapes, dtypes, head counts or boundaries that do not fit.
DeltaRuleResult DeltaRule(const Variable& q, const Variable& k,
                          const Variable& v, const Variable& g,
                          const Variable& beta, const Variable& initial_state,
                          const DeltaRuleOptions& options);

}  // namespace espalier

#endif  // ESPALIER_OPS_DELTA_RULE_DELTA_RULE_H_
