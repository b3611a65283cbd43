#include "espalier/runtime/packed_weight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "espalier/runtime/context.h"
#include "espalier/runtime/packed_encode.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Context> MakeContext() {
  ContextOptions options;
  options.num_threads = 1;
  return *Context::Create(options);
}

template <typename T>
Tensor Make(Device& device, const Shape& shape, const std::vector<T>& values) {
  return Tensor::FromHost<T>(device, shape, values);
}

// Another recipe for E4M3FN: counted upward from zero, one ulp at a time.
std::vector<double> CountedE4m3() {
  std::vector<double> values = {0};
  double step = 1.0 / 512;
  while (values.size() < 127) {
    values.push_back(values.back() + step);
    const size_t code = values.size() - 1;
    if (code % 8 == 0 && code > 8) step *= 2;  // a new binade begins
  }
  return values;
}

TEST(PackedCodesTest, EveryE4m3Code) {
  const std::vector<double> counted = CountedE4m3();
  ASSERT_EQ(counted[0x7e], 448);
  for (int code = 0; code < 127; ++code) {
    const auto negative = static_cast<uint8_t>(code | 0x80);
    EXPECT_EQ(DecodeE4m3(static_cast<uint8_t>(code)),
              counted[static_cast<size_t>(code)])
        << code;
    EXPECT_EQ(DecodeE4m3(negative), -counted[static_cast<size_t>(code)]);
    EXPECT_TRUE(std::signbit(DecodeE4m3(negative)));
    EXPECT_EQ(EncodeE4m3(DecodeE4m3(static_cast<uint8_t>(code))), code);
    EXPECT_EQ(EncodeE4m3(DecodeE4m3(negative)), negative);
  }
  EXPECT_TRUE(std::isnan(DecodeE4m3(0x7f)));
  EXPECT_TRUE(std::isnan(DecodeE4m3(0xff)));
  EXPECT_EQ(EncodeE4m3(std::numeric_limits<double>::quiet_NaN()), 0x7f);
}

TEST(PackedCodesTest, E4m3RoundsToNearestEven) {
  const std::vector<double> counted = CountedE4m3();
  for (size_t code = 0; code + 1 < 127; ++code) {
    const double middle = (counted[code] + counted[code + 1]) / 2;
    const size_t even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(EncodeE4m3(middle), even);
    EXPECT_EQ(EncodeE4m3(std::nextafter(middle, 0.0)), code);
    EXPECT_EQ(EncodeE4m3(std::nextafter(middle, 1e9)), code + 1);
  }
  EXPECT_EQ(EncodeE4m3(1e9), 0x7e);
  EXPECT_EQ(EncodeE4m3(-1e9), 0xfe);
}

TEST(PackedCodesTest, EveryE2m1CodeAndTie) {
  // sign, 2 bits of exponent (bias 1), 1 bit of mantissa
  for (int code = 0; code < 16; ++code) {
    const int exponent = (code >> 1) & 3;
    const double significand = (code & 1) * 0.5 + (exponent > 0 ? 1 : 0);
    const double value = significand * std::pow(2.0, std::max(exponent - 1, 0));
    const double expected = code >= 8 ? -value : value;
    const double decoded = DecodeE2m1(static_cast<uint8_t>(code));
    EXPECT_EQ(decoded, expected) << code;
    EXPECT_EQ(std::signbit(decoded), code >= 8);
    EXPECT_EQ(EncodeE2m1(decoded), code);
  }
  const double ties[7] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5};
  const int even[7] = {0, 2, 2, 4, 4, 6, 6};
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(EncodeE2m1(ties[i]), even[i]);
    EXPECT_EQ(EncodeE2m1(std::nextafter(ties[i], 0.0)), i);
    EXPECT_EQ(EncodeE2m1(std::nextafter(ties[i], 9.0)), i + 1);
  }
}

TEST(PackedCodesTest, EveryE8m0Code) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(DecodeE8m0(static_cast<uint8_t>(code)), std::exp2(code - 127));
  }
  EXPECT_TRUE(std::isnan(DecodeE8m0(255)));
}

TEST(PackedWeightTest, Mxfp4GoldenBytes) {
  const auto context = MakeContext();
  std::vector<uint8_t> bytes(16, 0);
  const uint8_t golden[4] = {0x21, 0x8f, 0x7a, 0xc4};
  std::memcpy(bytes.data(), golden, 4);
  const auto weight = PackedWeight::Create(
      PackedFormat::kMxfp4, 32, 1, 32, Make(context->cpu(), {1, 16}, bytes),
      Make<uint8_t>(context->cpu(), {1, 1}, {0x7d}));
  ASSERT_TRUE(weight.ok()) << weight.status();
  const std::vector<double> values = ToDoubles(DecodeReference(*weight, kF64));
  const double expected[8] = {0.125, 0.25, -1.5, -0.0, -0.25, 1.5, 0.5, -0.5};
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(values[i], expected[i]) << i;
  EXPECT_TRUE(std::signbit(values[3]));
  EXPECT_EQ(weight->bytes(), 17);
}

TEST(PackedWeightTest, Mxfp4EveryScaleTimesEveryNibble) {
  const auto context = MakeContext();
  std::vector<uint8_t> bytes;
  std::vector<uint8_t> scales;
  for (int row = 0; row < 256; ++row) {
    for (int j = 0; j < 16; ++j) {  // columns 2j and 2j+1: codes j and 15-j
      bytes.push_back(static_cast<uint8_t>(j | (15 - j) << 4));
    }
    scales.push_back(static_cast<uint8_t>(row));
  }
  const auto weight = PackedWeight::Create(
      PackedFormat::kMxfp4, 32, 256, 32, Make(context->cpu(), {256, 16}, bytes),
      Make(context->cpu(), {256, 1}, scales));
  ASSERT_TRUE(weight.ok());
  const std::vector<double> f64 = ToDoubles(DecodeReference(*weight, kF64));
  const std::vector<double> f32 = ToDoubles(DecodeReference(*weight, kF32));
  for (size_t row = 0; row < 256; ++row) {
    for (size_t column = 0; column < 32; ++column) {
      const size_t i = row * 32 + column;
      const size_t code = column % 2 == 0 ? column / 2 : 15 - column / 2;
      if (row == 255) {
        EXPECT_TRUE(std::isnan(f64[i]) && std::isnan(f32[i]));
        continue;
      }
      const double expected = DecodeE2m1(static_cast<uint8_t>(code)) *
                              std::exp2(static_cast<double>(row) - 127);
      EXPECT_EQ(f64[i], expected);
      EXPECT_EQ(f32[i], static_cast<float>(expected));
    }
  }
  const ScaleReport report = InspectScales(*weight);
  EXPECT_EQ(report.num_scales, 256);
  EXPECT_EQ(report.num_nan, 1);
  EXPECT_EQ(report.num_zero, 1);
  EXPECT_EQ(report.num_overflow, 2);
}

TEST(PackedWeightTest, Int4OffsetBinaryWithPartialGroup) {
  const auto context = MakeContext();
  std::vector<int32_t> words;
  for (int word = 0; word < 10; ++word) {  // codes 0..15 ascending, [2, 40]
    words.push_back(word % 2 == 0 ? 0x76543210
                                  : static_cast<int32_t>(0xfedcba98));
  }
  std::vector<BFloat16> scales;
  for (float s : {1.0f, 2.0f, 0.5f, 4.0f}) scales.emplace_back(s);
  const auto weight = PackedWeight::Create(
      PackedFormat::kInt4, 32, 2, 40, Make(context->cpu(), {2, 5}, words),
      Make(context->cpu(), {2, 2}, scales));
  ASSERT_TRUE(weight.ok()) << weight.status();
  const std::vector<double> values = ToDoubles(DecodeReference(*weight, kF64));
  for (size_t row = 0; row < 2; ++row) {
    for (size_t c = 0; c < 40; ++c) {
      const double scale = row == 0 ? (c < 32 ? 1 : 2) : (c < 32 ? 0.5 : 4);
      const double code = static_cast<double>((row * 40 + c) % 16) - 8;
      EXPECT_EQ(values[row * 40 + c], code * scale) << row << " " << c;
    }
  }
}

TEST(PackedWeightTest, Fp8EdgeBlocksArePartial) {
  const auto context = MakeContext();
  const int64_t out = 130;
  const int64_t in = 257;
  std::vector<uint8_t> codes;
  for (int64_t i = 0; i < out * in; ++i) {
    codes.push_back(static_cast<uint8_t>(i * 7 % 251));
  }
  const std::vector<float> scales = {0.5f, 3.0f, 0.1f, 7.0f, 11.0f, 1e-3f};
  const auto weight =
      PackedWeight::Create(PackedFormat::kFp8Block, 128, out, in,
                           Make(context->cpu(), {out, in}, codes),
                           Make(context->cpu(), {2, 3}, scales));
  ASSERT_TRUE(weight.ok()) << weight.status();
  const std::vector<double> f64 = ToDoubles(DecodeReference(*weight, kF64));
  const std::vector<double> bf16 = ToDoubles(DecodeReference(*weight, kBF16));
  for (int64_t r = 0; r < out; ++r) {
    for (int64_t c = 0; c < in; ++c) {
      const auto i = static_cast<size_t>(r * in + c);
      const float scale = scales[static_cast<size_t>(r / 128 * 3 + c / 128)];
      const double code = DecodeE4m3(codes[i]);
      if (std::isnan(code)) {
        EXPECT_TRUE(std::isnan(f64[i]));
        continue;
      }
      EXPECT_EQ(f64[i], code * scale);
      EXPECT_EQ(bf16[i], BFloat16(static_cast<float>(code) * scale));
    }
  }
}

TEST(PackedWeightTest, EncodersComeBackWithinHalfAStep) {
  const auto context = MakeContext();
  std::vector<float> values;
  for (int i = 0; i < 3 * 160; ++i) {
    values.push_back(std::sin(static_cast<float>(i) * 0.7f) * 3);
  }
  struct Case {
    PackedFormat format;
    int64_t group;
    double bound;  // of the error, as a share of the group's largest value
  };
  for (const Case& c : {Case{PackedFormat::kMxfp4, 32, 1.0 / 3},
                        Case{PackedFormat::kInt4, 32, 0.07},
                        Case{PackedFormat::kInt4, 128, 0.07},
                        Case{PackedFormat::kFp8Block, 128, 1.0 / 28}}) {
    const PackedWeight weight =
        EncodePacked(context->cpu(), c.format, c.group, 3, 160, values);
    const std::vector<double> decoded =
        ToDoubles(DecodeReference(weight, kF64));
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(decoded[i], values[i], 3 * c.bound) << ToString(weight);
    }
  }
}

TEST(PackedWeightTest, RefusesWithBothShapes) {
  const auto context = MakeContext();
  Device& cpu = context->cpu();
  const auto message = [&](PackedFormat format, int64_t group, int64_t out,
                           int64_t in, const Tensor& codes,
                           const Tensor& scales) {
    const auto weight =
        PackedWeight::Create(format, group, out, in, codes, scales);
    EXPECT_EQ(weight.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(weight.status().message());
  };
  const Tensor codes = Tensor::Zeros(cpu, {4, 32}, kU8);
  const Tensor scales = Tensor::Zeros(cpu, {4, 2}, kU8);
  EXPECT_THAT(message(PackedFormat::kMxfp4, 32, 4, 96, codes, scales),
              HasSubstr("codes is u8 [4, 32] on cpu, expected shape [4, 48]"));
  EXPECT_THAT(message(PackedFormat::kMxfp4, 32, 4, 64, codes,
                      Tensor::Zeros(cpu, {4, 4}, kU8)),
              HasSubstr("scales is u8 [4, 4] on cpu, expected shape [4, 2]"));
  EXPECT_THAT(message(PackedFormat::kMxfp4, 32, 4, 65, codes, scales),
              HasSubstr("65 input features, expected a multiple of 32"));
  EXPECT_THAT(message(PackedFormat::kInt4, 48, 4, 64, codes, scales),
              HasSubstr("group 48, expected 32, 64 or 128"));
  EXPECT_THAT(message(PackedFormat::kMxfp4, 32, 4, 64, codes,
                      Tensor::Zeros(cpu, {4, 2}, kF32)),
              HasSubstr("scales are f32"));
  EXPECT_THAT(message(PackedFormat::kInt4, 32, 4, 256, codes,
                      Tensor::Zeros(cpu, {4, 8}, kF32)),
              HasSubstr("codes are u8, expected i32"));
  EXPECT_THAT(message(PackedFormat::kFp8Block, 128, 4, 32, codes, Tensor()),
              HasSubstr("scales is absent, expected shape [1, 1]"));
  EXPECT_THAT(message(PackedFormat::kFp8Block, 128, 4, 32,
                      Tensor::Zeros(cpu, {32, 4}, kU8).Transpose(0, 1),
                      Tensor::Zeros(cpu, {1, 1}, kF32)),
              HasSubstr("strided along its rows"));
}

}  // namespace
}  // namespace espalier
