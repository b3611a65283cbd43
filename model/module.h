#ifndef ESPALIER_MODEL_MODULE_H_
#define ESPALIER_MODEL_MODULE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

#include "espalier/autograd/variable.h"
#include "espalier/runtime/tensor.h"

namespace espalier {

// A named weight. Declared with its shape; its value is given once, by loading
// or initialisation. Owned by a Module, stable address.
class Parameter {
 public:
  Parameter(std::string name, const Shape& shape)
      : name_(std::move(name)), shape_(shape) {}

  // The full name, equal to the Hugging Face checkpoint's.
  const std::string& name() const { return name_; }
  const Shape& shape() const { return shape_; }
  bool has_value() const { return static_cast<bool>(variable_); }
  // Fails INTERNAL before a value was given.
  const Variable& variable() const;
  Variable& variable();
  // The op that uses it takes other floating dtypes than the activations'.
  bool any_float() const { return any_float_; }
  void AllowAnyFloat() { any_float_ = true; }
  // Frozen unless `trainable`. The shape must be the declared one.
  void SetValue(Tensor value, bool trainable);

 private:
  const std::string name_;
  const Shape shape_;
  bool any_float_ = false;
  Variable variable_;
};

// A named tree of layers and parameters. Visits go in declaration order, own
// parameters first; that one order drives loading, saving, counting and
// freezing.
class Module {
 public:
  explicit Module(std::string name) : name_(std::move(name)) {}
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // The full path, such as "model.layers.0.self_attn.q_proj".
  const std::string& name() const { return name_; }
  void ForEachParameter(absl::FunctionRef<void(Parameter&)> visit);
  // This module and all below it.
  void ForEachModule(absl::FunctionRef<void(Module&)> visit);

 protected:
  Parameter& AddParameter(absl::string_view name, const Shape& shape);

  template <typename T, typename... Args>
  T& AddChild(absl::string_view name, Args&&... args) {
    auto child =
        std::make_unique<T>(ChildName(name), std::forward<Args>(args)...);
    T& reference = *child;
    children_.push_back(std::move(child));
    return reference;
  }
  // Takes over a module made elsewhere, as the last child.
  void Adopt(std::unique_ptr<Module> child) {
    children_.push_back(std::move(child));
  }
  std::string ChildName(absl::string_view name) const;

 private:
  const std::string name_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<Module>> children_;
};

}  // namespace espalier

#endif  // ESPALIER_MODEL_MODULE_H_
