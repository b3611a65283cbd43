#include "espalier/io/weight_encoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"
#include "espalier/io/internal/weight_codec.h"
#include "espalier/runtime/packed_encode.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Encoded {
  std::vector<uint8_t> codes;
  std::vector<double> scales;  // one for each group of a row
  std::vector<float> decoded;
};

// Rows of random values over many binades, and the edges: zeros, the largest
// and smallest numbers, one large value among small ones, exact ties.
std::vector<float> Values(int64_t rows, int64_t columns, float largest) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (int64_t r = 0; r < rows; ++r) {
    const float size = std::ldexp(1.0f, static_cast<int>(r * 11 % 200) - 100);
    for (int64_t c = 0; c < columns; ++c) {
      float& value = values[static_cast<size_t>(r * columns + c)];
      value = normal(random) * size;
      switch (r) {
        case 0:
          value = 0;
          break;
        case 1:
          value = c % 3 == 0 ? largest : -largest / 3;
          break;
        case 2:
          value = std::numeric_limits<float>::denorm_min() *
                  static_cast<float>(c % 50);
          break;
        case 3:
          value = c % 32 == 5 ? -7.5f : static_cast<float>(c % 31) * 0.25f;
          break;
        case 4:
          value = -0.0f;
          break;
        case 5:
          value = c == 0 ? 1e-38f : 1e-42f;
          break;
        default:
          break;
      }
    }
  }
  return values;
}

TEST(WeightEncoderTest, Mxfp4StaysWithinItsStatedError) {
  constexpr int64_t kRows = 70;
  constexpr int64_t kColumns = 96;
  const std::vector<float> values = Values(kRows, kColumns, 6 * 0x1p125f);
  std::vector<uint8_t> codes(kRows * kColumns / 2);
  std::vector<uint8_t> scales(kRows * kColumns / 32);
  ASSERT_TRUE(EncodeMxfp4Rows(values, kRows, kColumns, absl::MakeSpan(codes),
                              absl::MakeSpan(scales))
                  .ok());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t g = i / 32;
    float amax = 0;
    for (size_t j = 32 * g; j < 32 * g + 32; ++j) {
      amax = std::max(amax, std::fabs(values[j]));
    }
    const double scale = DecodeE8m0(scales[g]);
    const double value = DecodeE2m1(codes[i / 2] >> (4 * (i % 2)) & 15) * scale;
    const double error = std::fabs(value - static_cast<double>(values[i]));
    // No other code is nearer, and the bound of the header holds.
    for (uint8_t other = 0; other < 16; ++other) {
      EXPECT_LE(error, std::fabs(DecodeE2m1(other) * scale -
                                 static_cast<double>(values[i])));
    }
    EXPECT_LE(error, scale);
    EXPECT_EQ(std::signbit(value), std::signbit(values[i]));
    if (amax > 0 && scales[g] > 1) {
      EXPECT_LT(scale, amax / 3.0);
    }
    EXPECT_LE(amax, 6 * scale);
  }
  std::vector<float> tie(32, 0);
  const float kTies[] = {6, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, -0.25f};
  std::copy(std::begin(kTies), std::end(kTies), tie.begin());
  codes.resize(16);
  scales.resize(1);
  ASSERT_TRUE(
      EncodeMxfp4Rows(tie, 1, 32, absl::MakeSpan(codes), absl::MakeSpan(scales))
          .ok());
  EXPECT_EQ(scales[0], 127);
  const int kEven[] = {7, 0, 2, 2, 4, 4, 6, 6, 8};
  for (size_t i = 0; i < std::size(kEven); ++i) {
    EXPECT_EQ(codes[i / 2] >> (4 * (i % 2)) & 15, kEven[i]) << i;
  }
}

TEST(WeightEncoderTest, Int4StaysWithinItsStatedError) {
  for (const int64_t group : {int64_t{32}, int64_t{64}, int64_t{128}}) {
    constexpr int64_t kRows = 70;
    constexpr int64_t kColumns = 150;
    const std::vector<float> values = Values(kRows, kColumns, 3e38f);
    const int64_t groups = (kColumns + group - 1) / group;
    std::vector<uint8_t> codes(kRows * 76);
    std::vector<uint16_t> scales(static_cast<size_t>(kRows * groups));
    ASSERT_TRUE(EncodeInt4Rows(values, kRows, kColumns, group,
                               absl::MakeSpan(codes), absl::MakeSpan(scales))
                    .ok());
    std::vector<float> row_scales(scales.size());
    internal::FloatsFrom(SafetensorsDType::kBF16,
                         reinterpret_cast<const uint8_t*>(scales.data()),
                         static_cast<int64_t>(scales.size()),
                         row_scales.data());
    std::vector<float> decoded(kColumns);
    for (int64_t r = 0; r < kRows; ++r) {
      internal::DecodeIntRow(4, codes.data() + r * 76,
                             row_scales.data() + r * groups, nullptr, nullptr,
                             kColumns, group, decoded.data());
      for (int64_t c = 0; c < kColumns; ++c) {
        const double value = values[static_cast<size_t>(r * kColumns + c)];
        const double scale =
            row_scales[static_cast<size_t>(r * groups + c / group)];
        EXPECT_LE(std::fabs(decoded[static_cast<size_t>(c)] - value),
                  0.53 * scale)
            << r << " " << c;
        EXPECT_GE(scale, 0x1p-126);
      }
      // Padding holds code 0.
      EXPECT_EQ(codes[static_cast<size_t>(r * 76 + 75)], 0);
    }
  }
}

TEST(WeightEncoderTest, Fp8StaysWithinItsStatedError) {
  constexpr int64_t kRows = 140;
  constexpr int64_t kColumns = 200;
  std::vector<float> values = Values(kRows, kColumns, 3e38f);
  // The rows of one block share a scale: keep their sizes near each other.
  for (size_t i = 0; i < values.size(); ++i) {
    int exponent = 0;
    const float m = std::frexp(values[i], &exponent);
    values[i] = std::ldexp(m, exponent % 20);
  }
  std::vector<uint8_t> codes(values.size());
  std::vector<float> scales(4);
  ASSERT_TRUE(EncodeFp8Rows(values, kRows, kColumns, absl::MakeSpan(codes),
                            absl::MakeSpan(scales))
                  .ok());
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kColumns; ++c) {
      const size_t i = static_cast<size_t>(r * kColumns + c);
      const double scale = scales[static_cast<size_t>(r / 128 * 2 + c / 128)];
      const double value = values[i];
      const double error = std::fabs(DecodeE4m3(codes[i]) * scale - value);
      EXPECT_LE(error,
                std::max(std::fabs(value) / 16, scale / 1024) * (1 + 0x1p-20));
      EXPECT_EQ(codes[i], EncodeE4m3(value / scale)) << value;
    }
  }
}

// The plain encoder of runtime, which the kernels are tested with.
TEST(WeightEncoderTest, EqualsTheReferenceEncoder) {
  const auto context = test::MakeContext();
  constexpr int64_t kRows = 130;
  constexpr int64_t kColumns = 160;
  std::vector<float> values(kRows * kColumns);
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 0.02f);
  for (float& value : values) value = normal(random);
  std::fill(values.begin() + 320, values.begin() + 352, 0.0f);
  const auto expect = [&](PackedFormat format, int64_t group,
                          const std::vector<uint8_t>& codes,
                          const void* scales) {
    const PackedWeight reference =
        EncodePacked(context->cpu(), format, group, kRows, kColumns, values);
    EXPECT_EQ(std::memcmp(reference.codes().view().pointer, codes.data(),
                          codes.size()),
              0)
        << ToString(reference);
    EXPECT_EQ(std::memcmp(reference.scales().view().pointer, scales,
                          static_cast<size_t>(reference.scales().num_bytes())),
              0)
        << ToString(reference);
  };
  std::vector<uint8_t> codes(values.size() / 2);
  std::vector<uint8_t> e8m0(values.size() / 32);
  ASSERT_TRUE(EncodeMxfp4Rows(values, kRows, kColumns, absl::MakeSpan(codes),
                              absl::MakeSpan(e8m0))
                  .ok());
  expect(PackedFormat::kMxfp4, 32, codes, e8m0.data());
  std::vector<uint16_t> bf16(kRows * 5);
  ASSERT_TRUE(EncodeInt4Rows(values, kRows, kColumns, 32, absl::MakeSpan(codes),
                             absl::MakeSpan(bf16))
                  .ok());
  expect(PackedFormat::kInt4, 32, codes, bf16.data());
  codes.resize(values.size());
  std::vector<float> scales(4);
  ASSERT_TRUE(EncodeFp8Rows(values, kRows, kColumns, absl::MakeSpan(codes),
                            absl::MakeSpan(scales))
                  .ok());
  expect(PackedFormat::kFp8Block, 128, codes, scales.data());
}

TEST(WeightEncoderTest, RefusesWhatIsNotFinite) {
  std::vector<float> values(2 * 32, 1.0f);
  std::vector<uint8_t> codes(32);
  std::vector<uint8_t> all(64);
  std::vector<uint8_t> e8m0(2);
  std::vector<uint16_t> bf16(2);
  std::vector<float> scale(1);
  const auto messages = [&] {
    return std::vector<std::string>{
        std::string(EncodeMxfp4Rows(values, 2, 32, absl::MakeSpan(codes),
                                    absl::MakeSpan(e8m0))
                        .message()),
        std::string(EncodeInt4Rows(values, 2, 32, 32, absl::MakeSpan(codes),
                                   absl::MakeSpan(bf16))
                        .message()),
        std::string(EncodeFp8Rows(values, 2, 32, absl::MakeSpan(all),
                                  absl::MakeSpan(scale))
                        .message())};
  };
  EXPECT_THAT(messages(), ::testing::Each(""));
  values[35] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(messages(), ::testing::Each(HasSubstr("NaN at row 1, column 3")));
  values[35] = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(messages(),
              ::testing::Each(HasSubstr("infinity at row 1, column 3")));
  values[35] = 3e38f;
  EXPECT_THAT(messages()[0],
              AllOf(HasSubstr("row 1"), HasSubstr("largest that mxfp4")));
  EXPECT_FALSE(EncodeMxfp4Rows(values, 2, 31, absl::MakeSpan(codes),
                               absl::MakeSpan(e8m0))
                   .ok());
}

TEST(WeightEncoderTest, FloatsRoundToNearestEven) {
  const std::vector<float> values = {1.0f, 1.00390625f, 1.01171875f, -0.0f,
                                     65504.0f};
  uint16_t out[5];
  ASSERT_TRUE(EncodeFloats(SafetensorsDType::kBF16, values,
                           reinterpret_cast<uint8_t*>(out))
                  .ok());
  EXPECT_EQ(out[0], 0x3f80);
  EXPECT_EQ(out[1], 0x3f80);  // tie, down to even
  EXPECT_EQ(out[2], 0x3f82);  // tie, up to even
  EXPECT_EQ(out[3], 0x8000);
  EXPECT_TRUE(EncodeFloats(SafetensorsDType::kF16, values,
                           reinterpret_cast<uint8_t*>(out))
                  .ok());
  const std::vector<float> large = {1, 65520.0f};
  EXPECT_THAT(
      std::string(EncodeFloats(SafetensorsDType::kF16, large,
                               reinterpret_cast<uint8_t*>(out))
                      .message()),
      AllOf(HasSubstr("65520"), HasSubstr("element 1"), HasSubstr("F16")));
}

}  // namespace
}  // namespace espalier
