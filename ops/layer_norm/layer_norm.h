#ifndef ESPALIER_OPS_LAYER_NORM_LAYER_NORM_H_
#define ESPALIER_OPS_LAYER_NORM_LAYER_NORM_H_

#include "espalier/autograd/variable.h"

namespace espalier {

// Layer normalisation (arXiv:1607.06450).
// y[t,h] = weight[h] * (x[t,h] - mean_h) / sqrt(var_h + eps) + bias[h]
//   x [.., H] f64 | f32 | bf16   weight, bias [H] same dtype; bias may be
//   absent
// The variance is that of the row itself (divided by H), taken after the mean.
// All in f32 (f64 for f64), rounded once. Saves x, weight, mean and rstd
// [rows]. Differentiable in x, weight and bias; a frozen one costs no gradient.
// dweight and dbias are summed over blocks of rows in a fixed order.
// Fails: INTERNAL on shape or dtype mismatch, UNIMPLEMENTED without a kernel.
Variable LayerNorm(const Variable& x, const Variable& weight,
                   const Variable& bias, double eps);

}  // namespace espalier

#endif  // ESPALIER_OPS_LAYER_NORM_LAYER_NORM_H_
