#ifndef ESPALIER_OPS_REDUCE_REDUCE_H_
#define ESPALIER_OPS_REDUCE_REDUCE_H_

#include "espalier/autograd/variable.h"

namespace espalier {

// The sum of all elements, and it divided by their number.
//   x f64 | f32 | bf16, contiguous   returns [] in f32, f64 for f64
// Summed in f32 (f64 for f64) in pieces of kPointwiseGrain elements; the
// pieces are added in order in f64. The sum of no elements is 0, the mean NaN.
// Saves nothing. Fails: INTERNAL on a strided x, UNIMPLEMENTED without a
// kernel.
Variable Sum(const Variable& x);
Variable Mean(const Variable& x);

}  // namespace espalier

#endif  // ESPALIER_OPS_REDUCE_REDUCE_H_
