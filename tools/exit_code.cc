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

}  // namespace espalier::tools
