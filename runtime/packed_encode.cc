#include "espalier/runtime/packed_encode.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/guard.h"

namespace espalier {

namespace {

// Largest magnitude in rows [row, row + rows) and columns [column, column +
// columns), cut at the edges of [out, in].
double MaxMagnitude(absl::Span<const float> values, int64_t out, int64_t in,
                    int64_t row, int64_t rows, int64_t column,
                    int64_t columns) {
  double amax = 0;
  for (int64_t r = row; r < std::min(out, row + rows); ++r) {
    for (int64_t c = column; c < std::min(in, column + columns); ++c) {
      const float value = values[static_cast<size_t>(r * in + c)];
      amax = std::max(amax, std::fabs(static_cast<double>(value)));
    }
  }
  return amax;
}

PackedWeight Make(PackedFormat format, int64_t group, int64_t out, int64_t in,
                  Tensor codes, Tensor scales) {
  absl::StatusOr<PackedWeight> weight = PackedWeight::Create(
      format, group, out, in, std::move(codes), std::move(scales));
  if (!weight.ok()) internal::Fail(weight.status());
  return *std::move(weight);
}

PackedWeight EncodeMxfp4(Device& device, int64_t group, int64_t out, int64_t in,
                         absl::Span<const float> values) {
  Tensor codes = Tensor::Zeros(device, {out, in / 2}, kU8);
  Tensor scales = Tensor::Zeros(device, {out, in / group}, kU8);
  uint8_t* code = codes.mutable_data<uint8_t>();
  uint8_t* scale = scales.mutable_data<uint8_t>();
  for (int64_t r = 0; r < out; ++r) {
    for (int64_t g = 0; g < in / group; ++g) {
      const double amax = MaxMagnitude(values, out, in, r, 1, g * group, group);
      const double log = amax > 0 ? std::ceil(std::log2(amax / 6)) : 0;
      const int exponent = static_cast<int>(std::clamp(log, -126.0, 125.0));
      scale[r * (in / group) + g] = static_cast<uint8_t>(exponent + 127);
      for (int64_t c = g * group; c < (g + 1) * group; ++c) {
        const double value = values[static_cast<size_t>(r * in + c)];
        const uint8_t nibble = EncodeE2m1(std::ldexp(value, -exponent));
        code[(r * in + c) / 2] |= static_cast<uint8_t>(nibble << (4 * (c % 2)));
      }
    }
  }
  return Make(PackedFormat::kMxfp4, group, out, in, std::move(codes),
              std::move(scales));
}

PackedWeight EncodeInt4(Device& device, int64_t group, int64_t out, int64_t in,
                        absl::Span<const float> values) {
  const int64_t words = CeilDiv(in, 8);
  const int64_t groups = CeilDiv(in, group);
  Tensor codes = Tensor::Zeros(device, {out, words}, kI32);
  Tensor scales = Tensor::Empty(device, {out, groups}, kBF16);
  int32_t* code = codes.mutable_data<int32_t>();
  BFloat16* scale = scales.mutable_data<BFloat16>();
  for (int64_t r = 0; r < out; ++r) {
    for (int64_t g = 0; g < groups; ++g) {
      const double amax = MaxMagnitude(values, out, in, r, 1, g * group, group);
      const BFloat16 s(amax > 0 ? amax / 7.5 : 1.0);
      scale[r * groups + g] = s;
      for (int64_t c = g * group; c < std::min(in, (g + 1) * group); ++c) {
        const double value = values[static_cast<size_t>(r * in + c)];
        const double q = std::clamp(
            std::nearbyint(value / static_cast<double>(s)), -8.0, 7.0);
        code[r * words + c / 8] |= static_cast<int32_t>(
            static_cast<uint32_t>(static_cast<int>(q) + 8) << (4 * (c % 8)));
      }
    }
  }
  return Make(PackedFormat::kInt4, group, out, in, std::move(codes),
              std::move(scales));
}

PackedWeight EncodeFp8(Device& device, int64_t out, int64_t in,
                       absl::Span<const float> values) {
  constexpr int64_t kSide = kFp8BlockSide;
  const int64_t blocks = CeilDiv(in, kSide);
  Tensor codes = Tensor::Empty(device, {out, in}, kU8);
  Tensor scales = Tensor::Empty(device, {CeilDiv(out, kSide), blocks}, kF32);
  uint8_t* code = codes.mutable_data<uint8_t>();
  float* scale = scales.mutable_data<float>();
  for (int64_t i = 0; i < CeilDiv(out, kSide) * blocks; ++i) {
    const double amax = MaxMagnitude(values, out, in, i / blocks * kSide, kSide,
                                     i % blocks * kSide, kSide);
    scale[i] = amax > 0 ? static_cast<float>(amax / 448) : 1.0f;
  }
  for (int64_t r = 0; r < out; ++r) {
    for (int64_t c = 0; c < in; ++c) {
      const double s = scale[r / kSide * blocks + c / kSide];
      code[r * in + c] =
          EncodeE4m3(values[static_cast<size_t>(r * in + c)] / s);
    }
  }
  return Make(PackedFormat::kFp8Block, kSide, out, in, std::move(codes),
              std::move(scales));
}

}  // namespace

uint8_t EncodeE2m1(double value) {
  // Halfway points between neighbours; a tie goes to the even code.
  constexpr double kMiddle[7] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5};
  if (std::isnan(value)) return 0;
  const double magnitude = std::fabs(value);
  uint8_t code = 0;
  while (code < 7 && (magnitude > kMiddle[code] ||
                      (magnitude == kMiddle[code] && code % 2 == 1))) {
    ++code;
  }
  return static_cast<uint8_t>(code | (std::signbit(value) ? 8 : 0));
}

uint8_t EncodeE4m3(double value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return 0x7f;
  const double magnitude = std::fabs(value);
  if (magnitude >= 448) return sign | 0x7e;
  int exponent = magnitude > 0 ? std::ilogb(magnitude) : -6;
  exponent = std::max(exponent, -6);
  // In units of the last place; nearbyint rounds ties to even. A carry into
  // the next binade continues the code by itself.
  const int steps =
      static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));
  return static_cast<uint8_t>(sign | (steps + 8 * (exponent + 6)));
}

PackedWeight EncodePacked(Device& device, PackedFormat format, int64_t group,
                          int64_t out, int64_t in,
                          absl::Span<const float> values) {
  ESPALIER_CHECK(static_cast<int64_t>(values.size()) == out * in, values.size(),
                 " values for [", out, ", ", in, "]");
  switch (format) {
    case PackedFormat::kMxfp4:
      return EncodeMxfp4(device, group, out, in, values);
    case PackedFormat::kInt4:
      return EncodeInt4(device, group, out, in, values);
    case PackedFormat::kFp8Block:
      break;
  }
  return EncodeFp8(device, out, in, values);
}

}  // namespace espalier
