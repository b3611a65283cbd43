#ifndef ESPALIER_OPS_REDUCE_NORM_H_
#define ESPALIER_OPS_REDUCE_NORM_H_

#include "espalier/runtime/tensor.h"

namespace espalier {

// The sum of the squares of all elements, in f64, in pieces of fixed size that
// are added in order. x: f64 | f32 | bf16, contiguous, on a host-addressable
// device. NaN and infinity come through.
double SumOfSquares(const Tensor& x);

}  // namespace espalier

#endif  // ESPALIER_OPS_REDUCE_NORM_H_
