#ifndef ESPALIER_AUTOGRAD_MODE_H_
#define ESPALIER_AUTOGRAD_MODE_H_

#include <vector>

namespace espalier {

namespace autograd {
class Node;
class Region;
class SavedTensorScope;
}  // namespace autograd

namespace internal {

struct RegionFrame;

// What recording looks at; one per thread, the only thread-local state of the
// project.
struct AutogradMode {
  bool grad_enabled = true;
  // Nodes give up what others can make again (a selective region).
  bool selective = false;
  // The innermost recompute region that runs now.
  RegionFrame* frame = nullptr;
  // Nodes are counted here (autograd/saved.h).
  const autograd::Region* region = nullptr;
  // Where saved tensors go (autograd/saved_hooks.h).
  autograd::SavedTensorScope* saved_scope = nullptr;
  // Nodes waiting for their end, while one is being destroyed.
  std::vector<autograd::Node*>* condemned = nullptr;
};
AutogradMode& CurrentMode();

// Sets one field of the mode for a lifetime.
template <typename T>
class ModeScope {
 public:
  ModeScope(T AutogradMode::*field, T value)
      : field_(field), previous_(CurrentMode().*field) {
    CurrentMode().*field = value;
  }
  ~ModeScope() { CurrentMode().*field_ = previous_; }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  T AutogradMode::*const field_;
  const T previous_;
};

}  // namespace internal

// Nothing is recorded on this thread during its lifetime. Nestable.
class NoGrad {
 public:
  NoGrad() : scope_(&internal::AutogradMode::grad_enabled, false) {}

 private:
  internal::ModeScope<bool> scope_;
};

// Recording is on again inside a NoGrad.
class EnableGrad {
 public:
  EnableGrad() : scope_(&internal::AutogradMode::grad_enabled, true) {}

 private:
  internal::ModeScope<bool> scope_;
};

}  // namespace espalier

#endif  // ESPALIER_AUTOGRAD_MODE_H_
