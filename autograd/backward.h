#ifndef ESPALIER_AUTOGRAD_BACKWARD_H_
#define ESPALIER_AUTOGRAD_BACKWARD_H_

#include "absl/types/span.h"

#include "espalier/autograd/variable.h"

namespace espalier::autograd {

// Adds d(root)/d(leaf) * cotangent to the gradient of every leaf that needs
// one. `cotangent` has root's shape and dtype; absent means 1 and is legal for
// one-element roots. Nodes run in the reverse order of their recording, so the
// order of every sum is fixed. The walk is iterative. Each node's saved tensors
// are released as soon as it has run; a graph can be walked once. Fails
// INTERNAL on a second walk.
void Backward(const Variable& root, const Tensor& cotangent = Tensor());

// The same for several roots of one graph, in one walk.
void Backward(absl::Span<const Variable> roots,
              absl::Span<const Tensor> cotangents);

}  // namespace espalier::autograd

#endif  // ESPALIER_AUTOGRAD_BACKWARD_H_
