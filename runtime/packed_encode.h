#ifndef ESPALIER_RUNTIME_PACKED_ENCODE_H_
#define ESPALIER_RUNTIME_PACKED_ENCODE_H_

#include <cstdint>

#include "absl/types/span.h"

#include "espalier/runtime/device.h"
#include "espalier/runtime/packed_weight.h"

namespace espalier {

// Codes of the nearest representable value, ties to the even code. Beyond the
// largest value: that value. NaN gives code 0 (E2M1) or 0x7f (E4M3).
uint8_t EncodeE2m1(double value);
uint8_t EncodeE4m3(double value);

// W [out, in] in a packed format on a host-addressable device, layout kRows.
// values.size() == out * in. A group without a nonzero value gets scale 1.
//   kMxfp4     scale 2^ceil(log2(amax / 6)), clamped to the E8M0 range 1..252
//   kInt4      scale bf16(amax / 7.5), code round(w / scale) in -8..7
//   kFp8Block  scale f32(amax / 448)
// Plain loops; fails INTERNAL on a size mismatch.
PackedWeight EncodePacked(Device& device, PackedFormat format, int64_t group,
                          int64_t out, int64_t in,
                          absl::Span<const float> values);

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_PACKED_ENCODE_H_
