#include "espalier/runtime/device.h"

#include "espalier/runtime/context.h"

namespace espalier {

absl::string_view ToString(DeviceType type) {
  switch (type) {
    case DeviceType::kCpu:
      return "cpu";
    case DeviceType::kMeta:
      return "meta";
    case DeviceType::kSim:
      return "sim";
    case DeviceType::kCuda:
      return "cuda";
  }
  return "unknown";
}

Exec Device::exec(Stream& stream) const {
  return Exec{context_.pool(), context_.isa(), stream};
}

}  // namespace espalier
