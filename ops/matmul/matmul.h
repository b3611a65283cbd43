#ifndef ESPALIER_OPS_MATMUL_MATMUL_H_
#define ESPALIER_OPS_MATMUL_MATMUL_H_

#include <optional>

#include "espalier/autograd/variable.h"

namespace espalier {

struct MatMulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  double alpha = 1;  // scales the product
  double beta = 1;   // scales the addend
  std::optional<DType> out_dtype =
      std::nullopt;  // none: that of a; f32 or bf16
};

// c = alpha * op(a) op(b) + beta * addend, op(x) being x or its last two dims
// transposed.
//   op(a) [.., M, K]   op(b) [.., K, N] with the same leading dims, or [K, N]
//   shared by all of them   addend [.., M, N] of the result's dtype,
//   contiguous, may be absent   returns [.., M, N], contiguous
// f64 (all), or any mix of f32 and bf16: two bf16 operands are multiplied as
// bf16, any other pair as f32, accumulated in f32 and rounded once. Operands
// may be strided views; a shared b needs a contiguous a that is not transposed.
// Saves the other operand of each that needs a gradient, which is accumulated
// in f32 and has its operand's dtype; the sum over the leading dims of a shared
// b is part of that accumulation.
// Fails: INTERNAL on mismatched shapes or dtypes, UNIMPLEMENTED without a
// kernel.
// The addend is added in f32, before the one rounding; with beta 0 it is not
// read. Its gradient is beta * dc.
Variable MatMul(const Variable& a, const Variable& b,
                const MatMulOptions& options = {}, const Variable& addend = {});

struct LinearOptions {
  double alpha = 1;  // scales x weight^T, not the bias
  double beta = 1;   // scales the addend
  std::optional<DType> out_dtype = std::nullopt;  // none: that of x
};

// y = alpha * x weight^T + beta * addend + bias
//   x [.., in]   weight [out, in]   bias [out], may be absent, f32 or bf16 (f64
//   for f64)   addend [.., out] as for MatMul, may be absent
//   returns [.., out]
// Numerics as MatMul with transpose_b; bias is added in f32 before rounding,
// dbias is summed over rows in f32, in a fixed order. x is contiguous. A frozen
// weight or bias costs no gradient, a frozen x saves no weight.
Variable Linear(const Variable& x, const Variable& weight,
                const Variable& bias = {}, const LinearOptions& options = {},
                const Variable& addend = {});

}  // namespace espalier

#endif  // ESPALIER_OPS_MATMUL_MATMUL_H_
