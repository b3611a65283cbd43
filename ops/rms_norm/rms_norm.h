#ifndef ESPALIER_OPS_RMS_NORM_RMS_NORM_H_
#define ESPALIER_OPS_RMS_NORM_RMS_NORM_H_

#include "espalier/autograd/variable.h"

namespace espalier {

// RMSNorm (arXiv:1910.07467) as the Llama, Qwen and Mixtral families use it.
// y[t,h] = weight[h] * x[t,h] / sqrt(mean_h(x[t,:]^2) + eps)
//   x [.., H] f64 | f32 | bf16   weight [H] same dtype   returns x's shape
// The mean is taken in f32 (f64 for f64). Saves x, weight, rstd [rows].
// Differentiable in x and weight; a frozen weight costs no dweight.
// dweight is summed over blocks of rows in a fixed order.
// Fails: INTERNAL on shape or dtype mismatch, UNIMPLEMENTED without a kernel.
Variable RmsNorm(const Variable& x, const Variable& weight, double eps);

}  // namespace espalier

#endif  // ESPALIER_OPS_RMS_NORM_RMS_NORM_H_
