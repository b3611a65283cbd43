#ifndef ESPALIER_OPS_ACTIVATION_ACTIVATION_H_
#define ESPALIER_OPS_ACTIVATION_ACTIVATION_H_

#include "espalier/autograd/variable.h"
#include "espalier/ops/activations.h"

namespace espalier {

// y = activation(x), element by element (formulas: ops/activations.h).
//   x f64 | f32 | bf16, contiguous   returns x's shape
// bf16 is computed in f32 and rounded once. Saves x.
// Fails: INTERNAL on a strided x, UNIMPLEMENTED without a kernel.
Variable Activate(Activation activation, const Variable& x);

inline Variable Silu(const Variable& x) {
  return Activate(Activation::kSilu, x);
}
// Exact, with the error function.
inline Variable Gelu(const Variable& x) {
  return Activate(Activation::kGelu, x);
}
// "gelu_pytorch_tanh", "gelu_new".
inline Variable GeluTanh(const Variable& x) {
  return Activate(Activation::kGeluTanh, x);
}

}  // namespace espalier

#endif  // ESPALIER_OPS_ACTIVATION_ACTIVATION_H_
