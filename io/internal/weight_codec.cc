#include "espalier/io/internal/weight_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>

#include "espalier/runtime/float16.h"

namespace espalier::internal {

namespace {

constexpr std::array<float, 16> kE2m1 = {
    0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

constexpr std::array<float, 256> MakeE4m3() {
  std::array<float, 256> table{};
  for (uint32_t code = 0; code < 256; ++code) {
    const uint32_t exponent = code >> 3 & 15;
    const uint32_t mantissa = code & 7;
    float value = 0;
    if (exponent == 15 && mantissa == 7) {
      value = std::numeric_limits<float>::quiet_NaN();
    } else if (exponent == 0) {
      value = static_cast<float>(mantissa) * 0x1p-9f;
    } else {
      value = std::bit_cast<float>((exponent + 120) << 23 | mantissa << 20);
    }
    table[code] = (code & 0x80) != 0 ? -value : value;
  }
  return table;
}
constexpr std::array<float, 256> kE4m3 = MakeE4m3();

float FromE8m0(uint8_t code) {
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  if (code == 0) return 0x1p-127f;
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 23);
}

template <typename T>
T Load(const uint8_t* bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes + index * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

}  // namespace

void FloatsFrom(SafetensorsDType dtype, const uint8_t* bytes, int64_t count,
                float* out) {
  switch (dtype) {
    case SafetensorsDType::kF64:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = static_cast<float>(Load<double>(bytes, i));
      }
      return;
    case SafetensorsDType::kF32:
      std::memcpy(out, bytes, static_cast<size_t>(count) * sizeof(float));
      return;
    case SafetensorsDType::kBF16:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = std::bit_cast<float>(
            static_cast<uint32_t>(Load<uint16_t>(bytes, i)) << 16);
      }
      return;
    case SafetensorsDType::kF16:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = Float16::ToFloat(Load<uint16_t>(bytes, i));
      }
      return;
    case SafetensorsDType::kF8E4M3:
      for (int64_t i = 0; i < count; ++i) out[i] = kE4m3[bytes[i]];
      return;
    case SafetensorsDType::kF8E5M2:  // the upper half of an IEEE half
      for (int64_t i = 0; i < count; ++i) {
        out[i] = Float16::ToFloat(static_cast<uint16_t>(bytes[i] << 8));
      }
      return;
    default:
      for (int64_t i = 0; i < count; ++i) out[i] = FromE8m0(bytes[i]);
  }
}

void DecodeE2m1Row(const uint8_t* codes, const float* scales, int64_t columns,
                   int64_t group, float* out) {
  for (int64_t first = 0; first < columns; first += group) {
    const float scale = scales[first / group];
    std::array<float, 16> values{};
    for (size_t i = 0; i < values.size(); ++i) values[i] = kE2m1[i] * scale;
    const int64_t end = std::min(columns, first + group);
    for (int64_t i = first; i + 1 < end; i += 2) {
      const uint8_t byte = codes[i / 2];
      out[i] = values[byte & 15];
      out[i + 1] = values[byte >> 4];
    }
    if ((end - first) % 2 != 0) out[end - 1] = values[codes[end / 2] & 15];
  }
}

void DecodeE4m3Row(const uint8_t* codes, const float* scales, int64_t columns,
                   int64_t group, float* out) {
  for (int64_t first = 0; first < columns; first += group) {
    const float scale = scales[first / group];
    const int64_t end = std::min(columns, first + group);
    for (int64_t i = first; i < end; ++i) out[i] = kE4m3[codes[i]] * scale;
  }
}

void DecodeIntRow(int bits, const uint8_t* words, const float* scales,
                  const int32_t* zeros, const int32_t* index, int64_t columns,
                  int64_t group, float* out) {
  const int64_t per_word = 32 / bits;
  const uint32_t mask = (1u << bits) - 1;
  const int32_t offset = 1 << (bits - 1);
  if (index == nullptr && zeros == nullptr && bits == 4) {
    for (int64_t first = 0; first < columns; first += group) {
      const float scale = scales[first / group];
      const int64_t end = std::min(columns, first + group);
      for (int64_t i = first; i < end; ++i) {
        const int nibble = words[i / 2] >> (4 * (i % 2)) & 15;
        out[i] = static_cast<float>(nibble - 8) * scale;
      }
    }
    return;
  }
  for (int64_t i = 0; i < columns; ++i) {
    const int64_t g = index != nullptr ? index[i] : i / group;
    const uint32_t code = Load<uint32_t>(words, i / per_word) >>
                              (bits * static_cast<int>(i % per_word)) &
                          mask;
    const int32_t zero = zeros != nullptr ? zeros[g] : 0;
    out[i] = static_cast<float>(static_cast<int32_t>(code) - offset - zero) *
             scales[g];
  }
}

}  // namespace espalier::internal
