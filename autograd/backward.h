#ifndef ESPALIER_AUTOGRAD_BACKWARD_H_
#define ESPALIER_AUTOGRAD_BACKWARD_H_

#include "absl/types/span.h"

#include "espalier/autograd/variable.h"

namespace espalier::autograd {

// Adds d(root)/d(leaf) * cotangent to the gradient of every leaf that needs
// one. `cotangent` has root's shape and dtype; absent means 1 and is legal for
// one-element roots.
//
// Order of sums: nodes run in the reverse order of their recording; each node
// and each leaf sums the terms of one call as they come, and a leaf then adds
// that total to what earlier calls left: after calls 1, 2, 3 its gradient is
// (total_1 + total_2) + total_3, to the bit what summing the gradients of
// separate runs in that order gives. A leaf's gradient has memory of its own.
//
// The walk is iterative. Each node's saved tensors are released as soon as it
// has run; a graph can be walked once. Fails INTERNAL on a second walk and on
// a node whose gradients do not fit its inputs, naming the node. After a
// failure the gradients of the leaves are what they were before the call, and
// the graph is spent.
void Backward(const Variable& root, const Tensor& cotangent = Tensor());

// The same for several roots of one graph, in one walk; their cotangents are
// summed in the order given where roots coincide. Roots that need no gradient
// are skipped. Fails INTERNAL where nodes of two contexts meet.
void Backward(absl::Span<const Variable> roots,
              absl::Span<const Tensor> cotangents);

}  // namespace espalier::autograd

#endif  // ESPALIER_AUTOGRAD_BACKWARD_H_
