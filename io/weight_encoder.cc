#include "espalier/io/weight_encoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/float16.h"
#include "espalier/runtime/packed_weight.h"

namespace espalier {

namespace {

constexpr double kLeastScale = 0x1p-126;

absl::Status CheckSizes(bool sizes_match) {
  if (sizes_match) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the sizes of values, codes and scales do not belong together");
}

absl::Status CheckFinite(absl::Span<const float> values, int64_t columns) {
  uint32_t largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffffu);
  }
  if (largest < 0x7f800000u) return absl::OkStatus();
  size_t i = 0;
  while (std::isfinite(values[i])) ++i;
  const int64_t at = static_cast<int64_t>(i);
  return absl::InvalidArgumentError(absl::StrCat(
      std::isnan(values[i]) ? "NaN" : "infinity", " at row ", at / columns,
      ", column ", at % columns, "; a packed format holds neither"));
}

float MaxMagnitude(const float* values, int64_t count, float amax) {
  for (int64_t i = 0; i < count; ++i) {
    amax = std::max(amax, std::fabs(values[i]));
  }
  return amax;
}

// Magnitudes 0 to 6; beyond is 6.
uint32_t E2m1(float value) {
  const float m = std::fabs(value);
  const uint32_t code = static_cast<uint32_t>(
      (m > 0.25f) + (m >= 0.75f) + (m > 1.25f) + (m >= 1.75f) + (m > 2.5f) +
      (m >= 3.5f) + (m > 5.0f));
  return code | (std::bit_cast<uint32_t>(value) >> 28 & 8);
}

// A carry into the next binade continues the code by itself.
uint8_t E4m3(double value) {
  const uint64_t word = std::bit_cast<uint64_t>(value);
  const uint64_t sign = word >> 56 & 0x80;
  const double magnitude = std::fabs(value);
  uint64_t code = 0x7e;
  if (magnitude < 0x1p-6) {
    // The sum is rounded to steps of 2^-9, ties to even.
    constexpr double kStep = 0x1p43;
    code = std::bit_cast<uint64_t>(magnitude + kStep) & 15;
  } else if (magnitude < 448) {
    const uint64_t m = std::bit_cast<uint64_t>(magnitude);
    code = ((m + ((uint64_t{1} << 48) - 1) + (m >> 49 & 1)) >> 49) -
           (uint64_t{1016} << 3);
  }
  return static_cast<uint8_t>(sign | code);
}

// The least k with amax <= 6 * 2^k, within the range of the format.
int Mxfp4Exponent(float amax) {
  if (amax == 0) return 0;
  int exponent = 0;
  const float mantissa = std::frexp(amax, &exponent);  // [0.5, 1)
  return std::clamp(exponent - (mantissa <= 0.75f ? 3 : 2), -126, 125);
}

}  // namespace

absl::Status EncodeMxfp4Rows(absl::Span<const float> values, int64_t rows,
                             int64_t columns, absl::Span<uint8_t> codes,
                             absl::Span<uint8_t> scales) {
  constexpr int64_t kGroup = 32;
  constexpr float kLargest = 6 * 0x1p125f;
  absl::Status status = CheckSizes(
      columns % kGroup == 0 &&
      static_cast<int64_t>(values.size()) == rows * columns &&
      static_cast<int64_t>(codes.size()) == rows * columns / 2 &&
      static_cast<int64_t>(scales.size()) == rows * columns / kGroup);
  if (status.ok()) status = CheckFinite(values, columns);
  if (!status.ok()) return status;
  for (size_t g = 0; g < scales.size(); ++g) {
    const float* value = values.data() + g * kGroup;
    const float amax = MaxMagnitude(value, kGroup, 0);
    if (amax > kLargest) {
      const int64_t row = static_cast<int64_t>(g) * kGroup / columns;
      return absl::InvalidArgumentError(
          absl::StrCat("magnitude ", amax, " in row ", row, " is above ",
                       kLargest, ", the largest that mxfp4 holds"));
    }
    const int exponent = Mxfp4Exponent(amax);
    scales[g] = static_cast<uint8_t>(exponent + 127);
    const float inverse = std::ldexp(1.0f, -exponent);
    uint8_t* code = codes.data() + g * kGroup / 2;
    for (int64_t i = 0; i < kGroup / 2; ++i) {
      code[i] = static_cast<uint8_t>(E2m1(value[2 * i] * inverse) |
                                     E2m1(value[2 * i + 1] * inverse) << 4);
    }
  }
  return absl::OkStatus();
}

absl::Status EncodeInt4Rows(absl::Span<const float> values, int64_t rows,
                            int64_t columns, int64_t group,
                            absl::Span<uint8_t> codes,
                            absl::Span<uint16_t> scales) {
  const int64_t row_bytes = 4 * CeilDiv(columns, 8);
  const int64_t groups = group > 0 ? CeilDiv(columns, group) : 0;
  absl::Status status =
      CheckSizes(group > 0 && group % 8 == 0 &&
                 static_cast<int64_t>(values.size()) == rows * columns &&
                 static_cast<int64_t>(codes.size()) == rows * row_bytes &&
                 static_cast<int64_t>(scales.size()) == rows * groups);
  if (status.ok()) status = CheckFinite(values, columns);
  if (!status.ok()) return status;
  std::fill(codes.begin(), codes.end(), uint8_t{0});
  for (int64_t r = 0; r < rows; ++r) {
    uint8_t* code = codes.data() + r * row_bytes;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = g * group;
      const int64_t count = std::min(group, columns - first);
      const float* value = values.data() + r * columns + first;
      const double amax = MaxMagnitude(value, count, 0);
      const BFloat16 scale(amax > 0 ? std::max(amax / 7.5, kLeastScale) : 1.0);
      scales[static_cast<size_t>(r * groups + g)] = scale.bits;
      const double divisor = static_cast<double>(static_cast<float>(scale));
      for (int64_t i = 0; i < count; ++i) {
        const double q =
            std::clamp(std::nearbyint(value[i] / divisor), -8.0, 7.0);
        code[(first + i) / 2] |= static_cast<uint8_t>(
            static_cast<uint32_t>(static_cast<int>(q) + 8) << (4 * (i % 2)));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status EncodeFp8Rows(absl::Span<const float> values, int64_t rows,
                           int64_t columns, absl::Span<uint8_t> codes,
                           absl::Span<float> scales) {
  constexpr int64_t kSide = kFp8BlockSide;
  const int64_t blocks = CeilDiv(columns, kSide);
  absl::Status status = CheckSizes(
      static_cast<int64_t>(values.size()) == rows * columns &&
      codes.size() == values.size() &&
      static_cast<int64_t>(scales.size()) == CeilDiv(rows, kSide) * blocks);
  if (status.ok()) status = CheckFinite(values, columns);
  if (!status.ok()) return status;
  for (size_t b = 0; b < scales.size(); ++b) {
    const int64_t row = static_cast<int64_t>(b) / blocks * kSide;
    const int64_t column = static_cast<int64_t>(b) % blocks * kSide;
    const int64_t end = std::min(rows, row + kSide);
    const int64_t width = std::min(kSide, columns - column);
    float amax = 0;
    for (int64_t r = row; r < end; ++r) {
      amax = MaxMagnitude(values.data() + r * columns + column, width, amax);
    }
    scales[b] = amax > 0 ? static_cast<float>(std::max(
                               static_cast<double>(amax) / 448, kLeastScale))
                         : 1.0f;
    const double divisor = scales[b];
    for (int64_t r = row; r < end; ++r) {
      const float* value = values.data() + r * columns + column;
      uint8_t* code = codes.data() + r * columns + column;
      for (int64_t i = 0; i < width; ++i) code[i] = E4m3(value[i] / divisor);
    }
  }
  return absl::OkStatus();
}

absl::Status EncodeFloats(SafetensorsDType dtype,
                          absl::Span<const float> values, uint8_t* out) {
  const auto overflow = [&](size_t i) {
    return absl::InvalidArgumentError(
        absl::StrCat("value ", values[i], " at element ", i,
                     " is too large for ", ToString(dtype)));
  };
  switch (dtype) {
    case SafetensorsDType::kF32:
      std::memcpy(out, values.data(), values.size() * sizeof(float));
      return absl::OkStatus();
    case SafetensorsDType::kF64:
      for (size_t i = 0; i < values.size(); ++i) {
        const double value = values[i];
        std::memcpy(out + 8 * i, &value, sizeof(value));
      }
      return absl::OkStatus();
    case SafetensorsDType::kBF16:
    case SafetensorsDType::kF16: {
      const bool brain = dtype == SafetensorsDType::kBF16;
      const uint16_t infinity = brain ? 0x7f80 : 0x7c00;
      for (size_t i = 0; i < values.size(); ++i) {
        const uint16_t bits = brain ? BFloat16::FromFloat(values[i])
                                    : Float16::FromFloat(values[i]);
        if ((bits & 0x7fff) == infinity && std::isfinite(values[i])) {
          return overflow(i);
        }
        std::memcpy(out + 2 * i, &bits, sizeof(bits));
      }
      return absl::OkStatus();
    }
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(ToString(dtype), " is not a float type to write"));
  }
}

}  // namespace espalier
