#include "espalier/runtime/float16.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace espalier {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A binary format by its numbers, decoded and rounded in f64 arithmetic with
// no bit tricks: the independent recipe of this test.
struct Format {
  int exponent_bits;
  int mantissa_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  double Decode(uint32_t bits) const {
    const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
    const int exponent =
        static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const double sign = (bits >> (exponent_bits + mantissa_bits)) ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) {
      return mantissa == 0 ? sign * kInfinity : std::nan("");
    }
    if (exponent == 0) {
      return sign * std::ldexp(mantissa, 1 - bias() - mantissa_bits);
    }
    return sign * std::ldexp(mantissa + (1u << mantissa_bits),
                             exponent - bias() - mantissa_bits);
  }
  // The nearest value, ties to the even mantissa.
  double Round(double value) const {
    if (std::isnan(value) || std::isinf(value) || value == 0) return value;
    const int exponent = std::max(std::ilogb(value), 1 - bias());
    const double unit = std::ldexp(1.0, exponent - mantissa_bits);
    const double rounded = std::nearbyint(value / unit) * unit;  // exact steps
    const double largest =
        std::ldexp(2 - std::ldexp(1.0, -mantissa_bits), bias());
    return std::abs(rounded) > largest ? std::copysign(kInfinity, value)
                                       : rounded;
  }
};

constexpr Format kBrain = {8, 7};
constexpr Format kHalf = {5, 10};

template <typename T>
float ValueOf(uint32_t bits) {
  T value;
  value.bits = static_cast<uint16_t>(bits);
  return value;
}

::testing::AssertionResult SameValue(double got, double want) {
  if (std::isnan(want) ? std::isnan(got)
                       : got == want && std::signbit(got) == std::signbit(want))
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << got << ", expected " << want;
}

// All 65536 words decode as the format says and encode to themselves; the
// midpoints between neighbours, and what lies just beside, round as they must.
template <typename T>
void CheckAllWords(const Format& format) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = ValueOf<T>(bits);
    ASSERT_TRUE(SameValue(value, format.Decode(bits))) << bits;
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(static_cast<float>(T(value)))) << bits;
      continue;
    }
    ASSERT_EQ(T(value).bits, bits);
    if (std::isinf(value)) continue;
    const double next = format.Decode(bits + 1);
    // Beyond the largest value the next step of the same size is infinity's.
    const double step =
        std::isinf(next) ? value - format.Decode(bits - 1) : next - value;
    const double middle = value + step / 2;
    for (double x : {std::nextafter(middle, -kInfinity), middle,
                     std::nextafter(middle, kInfinity)}) {
      ASSERT_TRUE(SameValue(T(x), format.Round(x))) << bits << " " << x;
    }
    const auto single = static_cast<float>(middle);
    for (float x : {std::nextafter(single, -INFINITY), single,
                    std::nextafter(single, INFINITY)}) {
      ASSERT_TRUE(SameValue(T(x), format.Round(x))) << bits << " " << x;
    }
  }
}

TEST(Float16Test, EveryBFloat16) { CheckAllWords<BFloat16>(kBrain); }
TEST(Float16Test, EveryHalf) { CheckAllWords<Float16>(kHalf); }

TEST(Float16Test, EveryThousandthFloat) {
  for (uint64_t word = 0; word < (uint64_t{1} << 32); word += 997) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(word));
    ASSERT_TRUE(SameValue(BFloat16(x), kBrain.Round(x))) << word;
    ASSERT_TRUE(SameValue(Float16(x), kHalf.Round(x))) << word;
  }
}

TEST(Float16Test, ExtremeDoubles) {
  for (double sign : {1.0, -1.0}) {
    for (double x : {0.0, 1e-320, 1e-300, 1e-45, 1e-40, 3e38, 3.4e38, 1e39,
                     1e300, kInfinity, 65504.0, 65519.999999999, 65520.0}) {
      EXPECT_TRUE(SameValue(BFloat16(sign * x), kBrain.Round(sign * x)));
      EXPECT_TRUE(SameValue(Float16(sign * x), kHalf.Round(sign * x)));
    }
  }
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::nan("")))));
  EXPECT_TRUE(std::isnan(static_cast<float>(Float16(std::nan("")))));
}

TEST(Float16Test, NanKeepsSignAndBecomesQuiet) {
  const float signalling = std::bit_cast<float>(0xff800001u);
  EXPECT_EQ(BFloat16::FromFloat(signalling), 0xffc0);
  EXPECT_EQ(Float16::FromFloat(signalling), 0xfe00);
}

}  // namespace
}  // namespace espalier
