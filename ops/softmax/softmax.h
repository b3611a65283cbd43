#ifndef ESPALIER_OPS_SOFTMAX_SOFTMAX_H_
#define ESPALIER_OPS_SOFTMAX_SOFTMAX_H_

#include "espalier/autograd/variable.h"

namespace espalier {

// y[t,h] = e^(x[t,h] - m[t]) / sum_h e^(x[t,h] - m[t]),  m[t] = max_h x[t,h]
//   x [.., H] f64 | f32 | bf16, contiguous   returns x's shape
// In f32 (f64 for f64), rounded once. Saves y. A row with NaN, with +infinity
// or of -infinity alone is NaN.
// Fails: INTERNAL on a strided x, UNIMPLEMENTED without a kernel.
Variable Softmax(const Variable& x);

}  // namespace espalier

#endif  // ESPALIER_OPS_SOFTMAX_SOFTMAX_H_
