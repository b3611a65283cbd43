#ifndef ESPALIER_OPS_L2_NORM_L2_NORM_H_
#define ESPALIER_OPS_L2_NORM_L2_NORM_H_

#include "espalier/autograd/variable.h"

namespace espalier {

// Rows of length one, as the delta rule's queries and keys need them:
//   y = x / sqrt(sum(x^2) + eps), over the last dim; eps is inside the root
//   x [.., D] f64 | f32 | bf16   returns x's shape
// Computed in f32 (f64 for f64), rounded once. Saves x and 1 / root [rows].
// Fails: INTERNAL on a strided x, UNIMPLEMENTED without a kernel.
Variable L2Norm(const Variable& x, double eps);

}  // namespace espalier

#endif  // ESPALIER_OPS_L2_NORM_L2_NORM_H_
