#ifndef ESPALIER_OPS_RMS_NORM_RMS_NORM_H_
#define ESPALIER_OPS_RMS_NORM_RMS_NORM_H_

#include <cstdint>

#include "espalier/autograd/variable.h"

namespace espalier {

enum class NormWeight : uint8_t {
  kPlain,    // weight
  kPlusOne,  // 1 + weight: the zero-centred norms of qwen3_next, qwen3_5, gemma
};

enum class NormGate : uint8_t {
  kSilu,     // linear_attn.norm of qwen3_next, qwen3_5
  kSigmoid,  // o_norm of kimi_linear, kimi_k3
};

// RMSNorm (arXiv:1910.07467) as the Llama, Qwen and Mixtral families use it.
// y[t,h] = weight[h] * x[t,h] / sqrt(mean_h(x[t,:]^2) + eps)
//   x [.., H] f64 | f32 | bf16   weight [H] same dtype, or f32 for bf16 (o_norm
//   of kimi_k3)   returns x's shape
// All is computed in f32 (f64 for f64) and rounded once. Saves x, weight,
// rstd [rows]. Differentiable in x and weight; a frozen weight costs no
// dweight, which is summed over blocks of rows in a fixed order.
// Fails: INTERNAL on shape or dtype mismatch, UNIMPLEMENTED without a kernel.
Variable RmsNorm(const Variable& x, const Variable& weight, double eps,
                 NormWeight form = NormWeight::kPlain);

// y = RmsNorm(x, weight) * activation(gate): the norm first, then the gate.
//   gate: x's shape and dtype. Saves it too; differentiable in it.
Variable GatedRmsNorm(const Variable& x, const Variable& weight,
                      const Variable& gate, double eps, NormGate activation,
                      NormWeight form = NormWeight::kPlain);

}  // namespace espalier

#endif  // ESPALIER_OPS_RMS_NORM_RMS_NORM_H_
