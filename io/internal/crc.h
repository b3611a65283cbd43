#ifndef ESPALIER_IO_INTERNAL_CRC_H_
#define ESPALIER_IO_INTERNAL_CRC_H_

#include <cstdint>

#include "absl/types/span.h"

namespace espalier::internal {

// Cyclic redundancy checks that stores send: CRC-32 (ISO-HDLC), CRC-32C
// (iSCSI), CRC-64/NVME. All are reflected, with ones in and complemented.
enum class CrcKind { kCrc32, kCrc32c, kCrc64Nvme };

// Of bytes that are there at once; 0 for none.
uint64_t CrcOf(CrcKind kind, absl::Span<const uint8_t> bytes);

// What `crc`, of some bytes, adds (by xor) to the CRC of those bytes with
// `num_bytes` behind them: Crc(a b) = ShiftCrc(Crc(a), |b|) ^ Crc(b).
uint64_t ShiftCrc(CrcKind kind, uint64_t crc, int64_t num_bytes);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_CRC_H_
