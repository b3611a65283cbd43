#ifndef ESPALIER_OPS_MATMUL_LINEAR_TERMS_H_
#define ESPALIER_OPS_MATMUL_LINEAR_TERMS_H_

#include <cstdint>

#include "espalier/autograd/variable.h"
#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

// What products add, c = alpha a b + beta addend + bias: shared by MatMul and
// by Linear over every kind of weight.
namespace espalier::matmul {

// f32 or bf16, which may be mixed; f64 stands alone.
inline bool Narrow(DType dtype) { return dtype == kF32 || dtype == kBF16; }

// Fail INTERNAL on what does not suit; either may be absent.
//   bias [out_features], f32 | bf16, f64 for an f64 x   addend of the
//   result's shape and dtype, contiguous
void CheckBias(const Variable& bias, int64_t out_features, const Tensor& x);
void CheckAddend(const Variable& addend, double beta, const Shape& shape,
                 DType dtype);

// [N] of dy [.., N]: summed over rows in f32 (f64 for f64), in rising order.
Tensor BiasGradient(const Tensor& dy, DType dtype);
// beta * dy; zeros for 0.
Tensor AddendGradient(const Tensor& dy, double beta);

// [rows, columns] of a contiguous tensor [.., columns].
Tensor AsMatrix(const Tensor& x);

// For kernels: c = addend, both contiguous and alike.
void CopyAddend(const View& addend, const View& c, const Exec& exec);

}  // namespace espalier::matmul

#endif  // ESPALIER_OPS_MATMUL_LINEAR_TERMS_H_
