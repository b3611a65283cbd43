#ifndef ESPALIER_RUNTIME_CHECK_H_
#define ESPALIER_RUNTIME_CHECK_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// ESPALIER_CHECK(cond, parts...): a contract between pieces of code. Never
// reachable from user input, which is validated at the door and answered with
// a Status. A broken contract travels as internal::Failure (INTERNAL) to the
// nearest internal::Guard (runtime/guard.h).
#define ESPALIER_CHECK(cond, ...)                         \
  do {                                                    \
    if (!(cond)) [[unlikely]]                             \
      ::espalier::internal::CheckFailed(                  \
          __FILE__, __LINE__, #cond,                      \
          ::absl::StrCat("" __VA_OPT__(, ) __VA_ARGS__)); \
  } while (false)

namespace espalier::internal {

// Throws Failure(INTERNAL) with the file, the condition and the detail.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              absl::string_view detail);

// Throws Failure(status). `status` must not be OK.
[[noreturn]] void Fail(absl::Status status);

}  // namespace espalier::internal

#endif  // ESPALIER_RUNTIME_CHECK_H_
