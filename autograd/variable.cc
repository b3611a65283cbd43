#include "espalier/autograd/variable.h"

#include <utility>

#include "espalier/autograd/internal/state.h"
#include "espalier/runtime/check.h"

namespace espalier {

Variable::Variable(Tensor value, bool needs_grad)
    : state_(std::make_shared<internal::VariableState>()) {
  ESPALIER_CHECK(static_cast<bool>(value), "variable of an absent tensor");
  ESPALIER_CHECK(!needs_grad || IsFloat(value.dtype()), "gradient for ",
                 ToString(value.dtype()));
  state_->value = std::move(value);
  state_->needs_grad = needs_grad;
}

const Tensor& Variable::value() const {
  ESPALIER_CHECK(state_ != nullptr, "variable is absent");
  return state_->value;
}

bool Variable::needs_grad() const {
  return state_ != nullptr && state_->needs_grad;
}

bool Variable::is_leaf() const {
  return state_ == nullptr ||
         (state_->node == nullptr && state_->made_in == nullptr);
}

const Tensor& Variable::grad() const {
  ESPALIER_CHECK(state_ != nullptr, "variable is absent");
  ESPALIER_CHECK(is_leaf(), "gradients are kept for leaves");
  return state_->grad;
}

void Variable::ClearGrad() {
  ESPALIER_CHECK(state_ != nullptr, "variable is absent");
  state_->grad = Tensor();
}

Variable Variable::Detach() const {
  Variable result(value());
  result.state_->leaf_storage = state_->leaf_storage;
  return result;
}

}  // namespace espalier
