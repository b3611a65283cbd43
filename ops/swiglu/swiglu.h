#ifndef ESPALIER_OPS_SWIGLU_SWIGLU_H_
#define ESPALIER_OPS_SWIGLU_SWIGLU_H_

#include "espalier/autograd/variable.h"
#include "espalier/ops/activations.h"

namespace espalier {

// Gated activations (arXiv:2002.05202): y = activation(gate) * up.
//   gate, up   same shape, f64 | f32 | bf16, contiguous   returns their shape
// bf16 is computed in f32 and rounded once. Saves gate, and up if gate needs a
// gradient. Differentiable in both; a frozen input costs no gradient.
// Fails: INTERNAL on shape or dtype mismatch, UNIMPLEMENTED without a kernel.
Variable GatedActivation(Activation activation, const Variable& gate,
                         const Variable& up);

// silu(gate) * up, the MLP of the Llama, Qwen and Mixtral families.
inline Variable SwiGlu(const Variable& gate, const Variable& up) {
  return GatedActivation(Activation::kSilu, gate, up);
}

// gelu(gate) * up, the MLP of the Gemma family (kGeluTanh there).
inline Variable GeGlu(const Variable& gate, const Variable& up,
                      Activation gelu = Activation::kGelu) {
  return GatedActivation(gelu, gate, up);
}

}  // namespace espalier

#endif  // ESPALIER_OPS_SWIGLU_SWIGLU_H_
