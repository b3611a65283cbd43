#ifndef ESPALIER_OPS_CAST_CAST_H_
#define ESPALIER_OPS_CAST_CAST_H_

#include "espalier/autograd/variable.h"

namespace espalier {

// The same values in another floating dtype: f64 | f32 | bf16 | f16,
// contiguous. Narrowing rounds to nearest, ties to even; f64 reaches bf16 and
// f16 through f32. A cast to the dtype that x has is x itself. Saves nothing;
// the gradient is cast back. Fails: UNIMPLEMENTED for integers.
Variable Cast(const Variable& x, DType dtype);
Tensor Cast(const Tensor& x, DType dtype);

}  // namespace espalier

#endif  // ESPALIER_OPS_CAST_CAST_H_
