#ifndef ESPALIER_OPS_KDA_GATE_KDA_GATE_H_
#define ESPALIER_OPS_KDA_GATE_KDA_GATE_H_

#include "espalier/autograd/variable.h"

namespace espalier {

struct KdaGateOptions {
  // 0: g = -exp(A_log) softplus(z), unbounded below (kimi_linear; qwen3_next
  // and qwen3_5 with one value a head). Negative: g = lower_bound *
  // sigmoid(exp(A_log) z), in (lower_bound, 0) (kimi_k3: -5). Two different
  // functions: neither is a clamp of the other.
  double lower_bound = 0;
};

// The log decay of the delta rule (ops/delta_rule), z = f + dt_bias.
//   f [T, N, K] or [T, N], one value a head: f64 | f32 | bf16, N > 0
//   A_log [N], dt_bias [N * K]: f32 (f64 for f64)
//   returns f's shape in f32 (f64 for f64)
// All is f32 (f64), exp(A_log) at most e^80. Saves its inputs. Differentiable
// in all; a frozen one costs nothing. Gradients of A_log and dt_bias are summed
// over blocks of 64 tokens in order, then A_log's over a head's channels.
// Fails: INTERNAL on shapes, dtypes or a bound that do not fit.
Variable KdaGate(const Variable& f, const Variable& A_log,
                 const Variable& dt_bias, const KdaGateOptions& options);

}  // namespace espalier

#endif  // ESPALIER_OPS_KDA_GATE_KDA_GATE_H_
