#ifndef ESPALIER_OPS_ELEMENTWISE_ELEMENTWISE_H_
#define ESPALIER_OPS_ELEMENTWISE_ELEMENTWISE_H_

#include "espalier/autograd/variable.h"

namespace espalier {

// Arithmetic, element by element, on f64 | f32 | bf16; bf16 is computed in f32
// and rounded once. Operands have the same dtype and device and are contiguous.
// `b` has a's shape; in Add and Mul it may instead be a row [H] that meets
// every row of a [.., H], and its gradient is then summed over the rows, in
// f32 (f64 for f64), in blocks of rows, in a fixed order.
// Differentiable in all operands; a frozen operand costs no gradient.
// Fails: INTERNAL on shape or dtype mismatch, UNIMPLEMENTED without a kernel.

// y = a + b. Saves nothing.
Variable Add(const Variable& a, const Variable& b);
// y = a - b. Saves nothing.
Variable Sub(const Variable& a, const Variable& b);
// y = a * b. Saves each operand whose partner needs a gradient.
Variable Mul(const Variable& a, const Variable& b);
// y = a + factor * b, with one rounding. Saves nothing.
Variable AddScaled(const Variable& a, const Variable& b, double factor);
// y = factor * x. Saves nothing.
Variable Scale(const Variable& x, double factor);

}  // namespace espalier

#endif  // ESPALIER_OPS_ELEMENTWISE_ELEMENTWISE_H_
