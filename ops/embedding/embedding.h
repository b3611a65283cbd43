#ifndef ESPALIER_OPS_EMBEDDING_EMBEDDING_H_
#define ESPALIER_OPS_EMBEDDING_EMBEDDING_H_

#include "espalier/autograd/variable.h"

namespace espalier {

// y[t,:] = weight[ids[t],:]
//   weight [V, H] f64 | f32 | bf16   ids [T] i32   returns [T, H]
// Saves ids. Differentiable in weight: rows that no id names are zero, the
// terms of a row are added in the order of tokens, in f32 (f64 for f64),
// rounded once.
// Fails: INTERNAL on shapes and dtypes; INVALID_ARGUMENT, on host-addressable
// devices, for an id outside [0, V), with its position.
Variable Embedding(const Variable& weight, const Tensor& ids);

}  // namespace espalier

#endif  // ESPALIER_OPS_EMBEDDING_EMBEDDING_H_
