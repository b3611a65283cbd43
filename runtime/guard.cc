#include "espalier/runtime/guard.h"

#include <exception>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"

#include "espalier/runtime/check.h"

namespace espalier::internal {

absl::Status CurrentFailure() {
  try {
    throw;
  } catch (const Failure& failure) {
    // An OK status here would turn a failure into a success.
    return failure.status().ok()
               ? absl::InternalError("failure without a status")
               : failure.status();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("host memory is exhausted");
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("exception: ", error.what()));
  } catch (...) {
    return absl::InternalError("unknown exception");
  }
}

void Fail(absl::Status status) { throw Failure(std::move(status)); }

void CheckFailed(const char* file, int line, const char* condition,
                 absl::string_view detail) {
  const std::string path(file);
  const size_t slash = path.rfind('/');
  const absl::string_view base =
      slash == std::string::npos ? absl::string_view(path)
                                 : absl::string_view(path).substr(slash + 1);
  Fail(
      absl::InternalError(absl::StrCat(detail, detail.empty() ? "" : " ", "(",
                                       base, ":", line, ": ", condition, ")")));
}

}  // namespace espalier::internal
