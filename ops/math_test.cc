#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

#include "gtest/gtest.h"

#include "espalier/tests/support/env.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/math_test.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {

float ExpOf(float x) {
  const hn::ScalableTag<float> d;
  return hn::GetLane(Exp(d, hn::Set(d, x)));
}

float Exp2BriefOf(float y) {
  const hn::ScalableTag<float> d;
  return hn::GetLane(Exp2Brief(d, hn::Set(d, y)));
}

float SigmoidBriefOf(float x) {
  const hn::ScalableTag<float> d;
  return hn::GetLane(SigmoidBrief(d, hn::Set(d, x)));
}

float NormalIntegralBriefOf(float x) {
  const hn::ScalableTag<float> d;
  auto density = hn::Zero(d);
  return hn::GetLane(NormalIntegralBrief(d, hn::Set(d, x), density));
}

float SigmoidOf(float x) {
  const hn::ScalableTag<float> d;
  return hn::GetLane(Sigmoid(d, hn::Set(d, x)));
}

float NormalIntegralOf(float x) {
  const hn::ScalableTag<float> d;
  auto density = hn::Zero(d);
  return hn::GetLane(NormalIntegral(d, hn::Set(d, x), density));
}

float NormalDensityOf(float x) {
  const hn::ScalableTag<float> d;
  auto density = hn::Zero(d);
  NormalIntegral(d, hn::Set(d, x), density);
  return hn::GetLane(density);
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier {
namespace {

class MathTest : public ::testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Isas, MathTest,
                         ::testing::ValuesIn(test::RunnableIsas()));

// Instrumented builds look for bad accesses, not at values: fewer will do; an
// emulator is a hundred times slower.
#if defined(ESPALIER_ASAN) || defined(ESPALIER_EMULATED)
constexpr uint32_t kStride = 10007;
#else
constexpr uint32_t kStride = 101;
#endif

// Every kStride-th float of [-limit, limit].
void ForEachFloat(float limit, const std::function<void(float)>& fn) {
  const uint32_t last = std::bit_cast<uint32_t>(limit);
  for (uint32_t bits = 0; bits <= last; bits += kStride) {
    fn(std::bit_cast<float>(bits));
    fn(-std::bit_cast<float>(bits));
  }
}

TEST_P(MathTest, ExpIsWithinItsError) {
  const auto exp = ESPALIER_HWY_CALL(GetParam(), ExpOf);
  double worst = 0;
  ForEachFloat(88.7f, [&](float x) {
    const double want = std::exp(double{x});
    if (want < std::numeric_limits<float>::min()) {
      EXPECT_NEAR(exp(x), want, 0x1p-149) << x;
      return;
    }
    worst = std::max(worst, std::abs(exp(x) / want - 1));
  });
  EXPECT_LE(worst, 9e-8);
}

TEST_P(MathTest, ExpAtTheEnds) {
  const auto exp = ESPALIER_HWY_CALL(GetParam(), ExpOf);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp(0), 1);
  EXPECT_EQ(exp(-0.0f), 1);
  EXPECT_EQ(exp(88.73f), kInf);
  EXPECT_EQ(exp(kInf), kInf);
  EXPECT_EQ(exp(1e38f), kInf);
  EXPECT_EQ(exp(-104.0f), 0);
  EXPECT_EQ(exp(-1e38f), 0);
  EXPECT_EQ(exp(-kInf), 0);
  EXPECT_TRUE(std::isnan(exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST_P(MathTest, SigmoidIsWithinItsError) {
  const auto sigmoid = ESPALIER_HWY_CALL(GetParam(), SigmoidOf);
  double worst = 0;
  ForEachFloat(87.3f, [&](float x) {
    worst =
        std::max(worst, std::abs(sigmoid(x) * (1 + std::exp(-double{x})) - 1));
  });
  EXPECT_LE(worst, 2.5e-7);
  EXPECT_EQ(sigmoid(-1e9f), 0);
  EXPECT_EQ(sigmoid(1e9f), 1);
  EXPECT_EQ(sigmoid(std::numeric_limits<float>::infinity()), 1);
  EXPECT_EQ(sigmoid(-std::numeric_limits<float>::infinity()), 0);
}

TEST_P(MathTest, NormalIntegralIsWithinItsError) {
  const auto integral = ESPALIER_HWY_CALL(GetParam(), NormalIntegralOf);
  const auto density = ESPALIER_HWY_CALL(GetParam(), NormalDensityOf);
  double worst = 0;
  double worst_density = 0;
  ForEachFloat(20.0f, [&](float x) {
    const double want = 0.5 * std::erfc(-double{x} / std::sqrt(2.0));
    worst = std::max(worst, std::abs(integral(x) - want));
    const double bell = 0.3989422804014327 * std::exp(-0.5 * x * double{x});
    worst_density = std::max(worst_density, std::abs(density(x) - bell));
  });
  EXPECT_LE(worst, 2.1e-7);
  EXPECT_LE(worst_density, 5e-8);
}

TEST_P(MathTest, BriefFormsAreWithinTheirErrors) {
  const auto exp2 = ESPALIER_HWY_CALL(GetParam(), Exp2BriefOf);
  const auto sigmoid = ESPALIER_HWY_CALL(GetParam(), SigmoidBriefOf);
  const auto integral = ESPALIER_HWY_CALL(GetParam(), NormalIntegralBriefOf);
  double worst = 0;
  double worst_sigmoid = 0;
  ForEachFloat(87.3f, [&](float x) {
    worst = std::max(worst, std::abs(exp2(x) / std::exp2(double{x}) - 1));
    worst_sigmoid = std::max(
        worst_sigmoid, std::abs(sigmoid(x) * (1 + std::exp(-double{x})) - 1));
  });
  double worst_integral = 0;
  ForEachFloat(13.0f, [&](float x) {
    const double want = 0.5 * std::erfc(-double{x} / std::sqrt(2.0));
    worst_integral = std::max(worst_integral, std::abs(integral(x) / want - 1));
  });
  EXPECT_LE(worst, 7.6e-5);
  EXPECT_LE(worst_sigmoid, 1.5e-4);
  EXPECT_LE(worst_integral, 3e-4);
}

TEST_P(MathTest, BriefFormsAtTheEnds) {
  const auto exp2 = ESPALIER_HWY_CALL(GetParam(), Exp2BriefOf);
  const auto sigmoid = ESPALIER_HWY_CALL(GetParam(), SigmoidBriefOf);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp2(129), kInf);
  EXPECT_EQ(exp2(kInf), kInf);
  EXPECT_EQ(exp2(1e38f), kInf);
  EXPECT_EQ(exp2(-151), 0);
  EXPECT_EQ(exp2(-1e38f), 0);
  EXPECT_EQ(exp2(-kInf), 0);
  EXPECT_TRUE(std::isnan(exp2(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(sigmoid(-kInf), 0);
  EXPECT_NEAR(sigmoid(kInf), 1, 1e-4);
  EXPECT_NEAR(sigmoid(0), 0.5, 1e-4);
}

TEST_P(MathTest, SameBitsOnEveryInstructionSet) {
  const auto exp = ESPALIER_HWY_CALL(GetParam(), ExpOf);
  const auto baseline = ESPALIER_HWY_CALL(BaselineIsa(), ExpOf);
  int64_t num_different = 0;
  ForEachFloat(110.0f,
               [&](float x) { num_different += exp(x) != baseline(x); });
  EXPECT_EQ(num_different, 0);
}

}  // namespace
}  // namespace espalier
#endif
