#include "espalier/io/internal/crc.h"

#include <array>
#include <cstddef>

namespace espalier::internal {

namespace {

// Bit i of a value stands for x^(bits - 1 - i); `polynomial` leaves x^bits out.
struct Ring {
  int bits;
  uint64_t polynomial;
};

constexpr Ring kCrc32Ring = {32, 0xEDB88320};
constexpr Ring kCrc32cRing = {32, 0x82F63B78};
constexpr Ring kCrc64NvmeRing = {64, 0x9A6C9329AC4BC9B5};

constexpr uint64_t TimesX(uint64_t value, uint64_t polynomial) {
  return value >> 1 ^ (value % 2 == 1 ? polynomial : 0);
}

// [k][b]: byte b with k bytes of zeros behind it.
using Tables = std::array<std::array<uint64_t, 256>, 8>;

constexpr Tables MakeTables(uint64_t polynomial) {
  Tables tables = {};
  for (uint64_t byte = 0; byte < 256; ++byte) {
    uint64_t value = byte;
    for (auto& table : tables) {
      for (int bit = 0; bit < 8; ++bit) value = TimesX(value, polynomial);
      table[byte] = value;
    }
  }
  return tables;
}

constexpr Tables kCrc32Tables = MakeTables(kCrc32Ring.polynomial);
constexpr Tables kCrc32cTables = MakeTables(kCrc32cRing.polynomial);
constexpr Tables kCrc64NvmeTables = MakeTables(kCrc64NvmeRing.polynomial);

const Ring& RingOf(CrcKind kind) {
  switch (kind) {
    case CrcKind::kCrc32:
      return kCrc32Ring;
    case CrcKind::kCrc32c:
      return kCrc32cRing;
    default:
      return kCrc64NvmeRing;
  }
}

const Tables& TablesOf(CrcKind kind) {
  switch (kind) {
    case CrcKind::kCrc32:
      return kCrc32Tables;
    case CrcKind::kCrc32c:
      return kCrc32cTables;
    default:
      return kCrc64NvmeTables;
  }
}

uint64_t Times(const Ring& ring, uint64_t a, uint64_t b) {
  uint64_t product = 0;
  for (int i = ring.bits - 1; i >= 0; --i) {
    if ((a >> i & 1) != 0) product ^= b;
    b = TimesX(b, ring.polynomial);
  }
  return product;
}

}  // namespace

uint64_t CrcOf(CrcKind kind, absl::Span<const uint8_t> bytes) {
  const Tables& tables = TablesOf(kind);
  const uint64_t ones = ~uint64_t{0} >> (64 - RingOf(kind).bits);
  uint64_t crc = ones;
  const uint8_t* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t next = 0;
    for (size_t i = 0; i < 8; ++i) next |= uint64_t{at[i]} << (8 * i);
    next ^= crc;
    crc = 0;
    for (size_t i = 0; i < 8; ++i) crc ^= tables[7 - i][next >> (8 * i) & 0xff];
  }
  for (; left > 0; --left, ++at) {
    crc = crc >> 8 ^ tables[0][(crc ^ *at) & 0xff];
  }
  return crc ^ ones;
}

uint64_t ShiftCrc(CrcKind kind, uint64_t crc, int64_t num_bytes) {
  const Ring& ring = RingOf(kind);
  uint64_t power = uint64_t{1} << (ring.bits - 1 - 8);  // x^8
  for (; num_bytes > 0; num_bytes /= 2) {
    if (num_bytes % 2 == 1) crc = Times(ring, power, crc);
    power = Times(ring, power, power);
  }
  return crc;
}

}  // namespace espalier::internal
