#ifndef ESPALIER_OPS_RESHAPE_RESHAPE_H_
#define ESPALIER_OPS_RESHAPE_RESHAPE_H_

#include <initializer_list>

#include "absl/types/span.h"

#include "espalier/autograd/variable.h"

namespace espalier {

// The same elements in row-major order under another shape, as a view of x's
// storage; one extent may be -1. x is contiguous, of any dtype. Saves nothing.
// Fails: INTERNAL when the numbers of elements differ.
Variable Reshape(const Variable& x, absl::Span<const int64_t> dims);
inline Variable Reshape(const Variable& x,
                        std::initializer_list<int64_t> dims) {
  return Reshape(x, absl::MakeConstSpan(dims.begin(), dims.size()));
}

}  // namespace espalier

#endif  // ESPALIER_OPS_RESHAPE_RESHAPE_H_
