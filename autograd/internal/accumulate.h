#ifndef ESPALIER_AUTOGRAD_INTERNAL_ACCUMULATE_H_
#define ESPALIER_AUTOGRAD_INTERNAL_ACCUMULATE_H_

#include "espalier/runtime/tensor.h"

namespace espalier::internal {

// sum += term, element by element; bf16 and f16 are added in f32 and rounded
// once. Takes over `term` when `sum` is absent. When `sum` shares its storage
// with another handle, or does not come from the allocator, the sum goes to a
// new tensor.
//   sum, term: same shape and dtype, contiguous, floating point
void Accumulate(Tensor& sum, Tensor term);

// Whether this is the only handle on memory from the allocator.
bool IsExclusive(const Tensor& tensor);

// `tensor` itself if it is the only handle on memory of exactly its size from
// the allocator, else a copy that is. Contiguous, floating point.
Tensor Own(Tensor tensor);

}  // namespace espalier::internal

#endif  // ESPALIER_AUTOGRAD_INTERNAL_ACCUMULATE_H_
