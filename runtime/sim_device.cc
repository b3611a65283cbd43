#include "espalier/runtime/check.h"
#include "espalier/runtime/internal/devices.h"

namespace espalier::internal {

std::unique_ptr<Device> MakeSimDevice(Context&, uint64_t) {
  Fail(absl::UnimplementedError("this build has no sim device"));
}

}  // namespace espalier::internal
