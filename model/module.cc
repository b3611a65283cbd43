#include "espalier/model/module.h"

#include "absl/strings/str_cat.h"

#include "espalier/runtime/check.h"

namespace espalier {

const Variable& Parameter::variable() const {
  ESPALIER_CHECK(has_value(), "parameter ", name_, " has no value");
  return variable_;
}

Variable& Parameter::variable() {
  ESPALIER_CHECK(has_value(), "parameter ", name_, " has no value");
  return variable_;
}

void Parameter::SetValue(Tensor value, bool trainable) {
  ESPALIER_CHECK(value.shape() == shape_, name_, " is ",
                 ToString(value.shape()), ", declared ", ToString(shape_));
  variable_ = Variable(std::move(value), trainable);
}

void Module::ForEachParameter(absl::FunctionRef<void(Parameter&)> visit) {
  for (const auto& parameter : parameters_) visit(*parameter);
  for (const auto& child : children_) child->ForEachParameter(visit);
}

void Module::ForEachModule(absl::FunctionRef<void(Module&)> visit) {
  visit(*this);
  for (const auto& child : children_) child->ForEachModule(visit);
}

Parameter& Module::AddParameter(absl::string_view name, const Shape& shape) {
  parameters_.push_back(std::make_unique<Parameter>(ChildName(name), shape));
  return *parameters_.back();
}

std::string Module::ChildName(absl::string_view name) const {
  return name_.empty() ? std::string(name) : absl::StrCat(name_, ".", name);
}

}  // namespace espalier
