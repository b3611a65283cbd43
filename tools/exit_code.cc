#include <cstdio>

#include "espalier/tools/commands.h"

namespace espalier::tools {

int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
      return kExitBadInput;
    case absl::StatusCode::kResourceExhausted:
      return kExitMemory;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
      return kExitPeer;
    case absl::StatusCode::kFailedPrecondition:
      return kExitNumeric;
    default:
      return 1;
  }
}

int FailOnFolder(const char* command, const absl::Status& status) {
  std::fprintf(stderr, "espalier %s: %s\n", command,
               std::string(status.message()).c_str());
  switch (status.code()) {
    case absl::StatusCode::kOutOfRange:
      return kExitUsage;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kFailedPrecondition:
      return kExitBadInput;
    default:
      return ExitCode(status);
  }
}

int Print(const absl::StatusOr<std::string>& text) {
  if (!text.ok()) return FailOnFolder("print", text.status());
  std::fputs(text->c_str(), stdout);
  return 0;
}

}  // namespace espalier::tools
