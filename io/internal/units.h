#ifndef ESPALIER_IO_INTERNAL_UNITS_H_
#define ESPALIER_IO_INTERNAL_UNITS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace espalier::internal {

// "2.78 T", "104.2 G", "697,024" below a million: four digits at least.
std::string CountText(int64_t count);

// "1.45 TB" (powers of 1000), "512 B".
std::string BytesText(int64_t bytes);

// "5GB", "256 MiB", "1000000": bytes, with B, KB to TB (powers of 1000) or
// KiB to TiB. INVALID_ARGUMENT otherwise, and for what is not above 0.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_UNITS_H_
