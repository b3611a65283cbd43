#ifndef ESPALIER_AUTOGRAD_VARIABLE_H_
#define ESPALIER_AUTOGRAD_VARIABLE_H_

#include <memory>

#include "espalier/runtime/tensor.h"

namespace espalier {

namespace internal {
struct VariableState;
}

// A tensor in a graph: a value, whether a gradient is wanted, and, unless it is
// a leaf, the node that made it. Copying copies the handle. A default-made
// Variable is absent (an optional input that is not given).
// Thread-compatible; a graph is built and walked by one thread.
class Variable {
 public:
  Variable() = default;
  // A leaf.
  explicit Variable(Tensor value, bool needs_grad = false);

  explicit operator bool() const { return state_ != nullptr; }
  const Tensor& value() const;
  const Shape& shape() const { return value().shape(); }
  DType dtype() const { return value().dtype(); }
  // A leaf made so, or a result of one. False for absent variables.
  bool needs_grad() const;
  bool is_leaf() const;
  // Of a leaf: the sum of all gradients since the last ClearGrad(), of the
  // value's shape and dtype; absent before the first.
  const Tensor& grad() const;
  void ClearGrad();
  // The same value as a leaf without gradient.
  Variable Detach() const;

 private:
  friend struct internal::VariableState;
  explicit Variable(std::shared_ptr<internal::VariableState> state)
      : state_(std::move(state)) {}
  std::shared_ptr<internal::VariableState> state_;
};

}  // namespace espalier

#endif  // ESPALIER_AUTOGRAD_VARIABLE_H_
