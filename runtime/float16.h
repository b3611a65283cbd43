#ifndef ESPALIER_RUNTIME_FLOAT16_H_
#define ESPALIER_RUNTIME_FLOAT16_H_

#include <bit>
#include <cstdint>

namespace espalier {

namespace internal {

// An f32 that rounds to a narrower type as `value` itself does: the nearest f32
// towards zero, with the last bit set where something was cut off (rounding to
// odd; Boldo, Melquiond, IEEE Trans. Computers 57(4), 2008).
inline float RoundToOdd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  if (back == value || value != value) return nearest;
  uint32_t word = std::bit_cast<uint32_t>(nearest);
  const double magnitude = value < 0 ? -value : value;
  if ((back < 0 ? -back : back) > magnitude) --word;
  return std::bit_cast<float>(word | 1u);
}

}  // namespace internal

// bfloat16: the upper half of an f32. Conversion from f32 or f64 rounds once,
// to nearest, ties to even; NaN stays NaN (quiet).
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) : bits(FromFloat(value)) {}
  explicit BFloat16(double value) : BFloat16(internal::RoundToOdd(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor): widening loses nothing
  operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }

  static uint16_t FromFloat(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) {
      return static_cast<uint16_t>((word >> 16) | 0x40u);
    }
    return static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
};

// IEEE binary16, same rounding; overflow becomes infinity.
struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) : bits(FromFloat(value)) {}
  explicit Float16(double value) : Float16(internal::RoundToOdd(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor): widening loses nothing
  operator float() const { return ToFloat(bits); }

  static uint16_t FromFloat(float value);
  static float ToFloat(uint16_t bits);
};

inline uint16_t Float16::FromFloat(float value) {
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (word >> 16) & 0x8000u;
  const uint32_t magnitude = word & 0x7fffffffu;
  if (magnitude >= 0x7f800000u) {  // infinity or NaN
    return static_cast<uint16_t>(sign | 0x7c00u |
                                 (magnitude > 0x7f800000u ? 0x200u : 0u));
  }
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // subnormal half: let f32 addition round
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(
        sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

inline float Float16::ToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  if (exponent == 31) {
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) |
                              (mantissa << 13));
}

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_FLOAT16_H_
