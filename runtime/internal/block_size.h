#ifndef ESPALIER_RUNTIME_INTERNAL_BLOCK_SIZE_H_
#define ESPALIER_RUNTIME_INTERNAL_BLOCK_SIZE_H_

#include <bit>
#include <cstdint>

namespace espalier::internal {

// Block sizes are a pure function of the bytes asked for, the same on every
// device and whatever was allocated before: a dry run on meta counts what the
// real run will hold.
inline constexpr int64_t kBlockAlignment = 64;
// Up to here blocks have a size class and lie in slabs.
inline constexpr int64_t kSmallBytes = int64_t{16} << 10;
// Blocks above are rounded to this.
inline constexpr int64_t kLargeUnit = 512;
// More is never asked for in earnest; keeps the sums below overflow.
inline constexpr int64_t kMaxBlockBytes = int64_t{1} << 56;
// 64, 128 .. 512, then eight classes for each doubling.
inline constexpr int kNumSizeClasses = 48;

// [bytes, unit] -> the next multiple of unit, a power of two.
constexpr int64_t RoundUp(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) & ~(unit - 1);
}

// 0 <= bytes <= kMaxBlockBytes. At most an eighth (or 63 bytes) is added.
constexpr int64_t BlockBytes(int64_t bytes) {
  if (bytes <= 0) return kBlockAlignment;
  if (bytes <= 512) return RoundUp(bytes, kBlockAlignment);
  if (bytes > kSmallBytes) return RoundUp(bytes, kLargeUnit);
  const auto below = static_cast<uint64_t>(bytes - 1);
  return RoundUp(bytes, static_cast<int64_t>(std::bit_floor(below) / 8));
}

// In [0, kNumSizeClasses), for block_bytes = BlockBytes(b) <= kSmallBytes.
constexpr int SizeClass(int64_t block_bytes) {
  if (block_bytes <= 512) return static_cast<int>(block_bytes / 64) - 1;
  const auto below = static_cast<uint64_t>(block_bytes - 1);
  const int doubling = std::bit_width(below) - 10;  // 0 for (512, 1024]
  const auto eighth = static_cast<int>(below >> (doubling + 6)) - 8;
  return 8 + 8 * doubling + eighth;
}

}  // namespace espalier::internal

#endif  // ESPALIER_RUNTIME_INTERNAL_BLOCK_SIZE_H_
