#ifndef ESPALIER_RUNTIME_INTERNAL_DEVICES_H_
#define ESPALIER_RUNTIME_INTERNAL_DEVICES_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "espalier/runtime/device.h"

namespace espalier::internal {

std::unique_ptr<Device> MakeCpuDevice(Context& context,
                                      std::optional<int64_t> budget_bytes,
                                      bool poison);
std::unique_ptr<Device> MakeMetaDevice(Context& context);
std::unique_ptr<Device> MakeSimDevice(Context& context, uint64_t seed);

}  // namespace espalier::internal

#endif  // ESPALIER_RUNTIME_INTERNAL_DEVICES_H_
