#ifndef ESPALIER_RUNTIME_GUARD_H_
#define ESPALIER_RUNTIME_GUARD_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace espalier::internal {

// The one exception type of the project: a Status on its way to the nearest
// Guard. Thrown by ESPALIER_CHECK, Fail, the allocators and the transports.
class Failure {
 public:
  explicit Failure(absl::Status status) : status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// Status of the exception being handled. Call only inside a catch block.
absl::Status CurrentFailure();

// Runs fn and returns OK, or the Status of what it threw. Stands at every
// public entry point; nothing else catches.
template <typename Fn>
absl::Status Guard(Fn&& fn) {
  try {
    std::forward<Fn>(fn)();
    return absl::OkStatus();
  } catch (...) {
    return CurrentFailure();
  }
}

// As Guard, for a function that returns T.
template <typename T, typename Fn>
absl::StatusOr<T> GuardValue(Fn&& fn) {
  try {
    return std::forward<Fn>(fn)();
  } catch (...) {
    return CurrentFailure();
  }
}

}  // namespace espalier::internal

#endif  // ESPALIER_RUNTIME_GUARD_H_
