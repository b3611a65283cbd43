#ifndef ESPALIER_AUTOGRAD_MODE_H_
#define ESPALIER_AUTOGRAD_MODE_H_

namespace espalier {

namespace internal {

// What recording looks at; one per thread, the only thread-local state of the
// project.
struct AutogradMode {
  bool grad_enabled = true;
};
AutogradMode& CurrentMode();

}  // namespace internal

// Nothing is recorded on this thread during its lifetime. Nestable.
class NoGrad {
 public:
  NoGrad() : previous_(internal::CurrentMode().grad_enabled) {
    internal::CurrentMode().grad_enabled = false;
  }
  ~NoGrad() { internal::CurrentMode().grad_enabled = previous_; }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  const bool previous_;
};

// Recording is on again inside a NoGrad (recomputation).
class EnableGrad {
 public:
  EnableGrad() : previous_(internal::CurrentMode().grad_enabled) {
    internal::CurrentMode().grad_enabled = true;
  }
  ~EnableGrad() { internal::CurrentMode().grad_enabled = previous_; }
  EnableGrad(const EnableGrad&) = delete;
  EnableGrad& operator=(const EnableGrad&) = delete;

 private:
  const bool previous_;
};

}  // namespace espalier

#endif  // ESPALIER_AUTOGRAD_MODE_H_
