#include "espalier/ops/rope/rope.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "espalier/runtime/guard.h"
#include "espalier/tests/support/compare.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

RopeOptions Options(RopeLayout layout, int64_t rotary_dim) {
  RopeOptions options;
  options.layout = layout;
  options.rotary_dim = rotary_dim;
  options.theta = 100;
  return options;
}

// Positions restart in the second document.
test::Fn Turned(const RopeOptions& options) {
  return [options](const std::vector<Variable>& in) {
    const int64_t tokens = in[0].shape().dim(0);
    std::vector<int32_t> positions;
    positions.reserve(static_cast<size_t>(tokens));
    for (int64_t t = 0; t < tokens; ++t) {
      positions.push_back(static_cast<int32_t>(t < 3 ? 1000 + t : t - 3));
    }
    return Rope(
        in[0],
        Tensor::FromHost<int32_t>(in[0].value().device(), {tokens}, positions),
        options);
  };
}

class RopeTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, RopeTest,
                         ::testing::ValuesIn(test::Targets(1e-5, 2e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(RopeTest, MatchesF64Reference) {
  for (const RopeLayout layout :
       {RopeLayout::kHalfSplit, RopeLayout::kInterleaved}) {
    for (const Shape& x :
         {Shape{0, 2, 4}, Shape{1, 1, 2}, Shape{7, 3, 10}, Shape{5, 2, 66}}) {
      EXPECT_TRUE(test::MatchesReference(Turned(Options(layout, x[2])),
                                         GetParam(), {x}))
          << ToString(x);
    }
    EXPECT_TRUE(test::MatchesReference(Turned(Options(layout, 6)), GetParam(),
                                       {Shape{4, 3, 11}}))
        << "partial";
  }
}

TEST_P(RopeTest, SameBitsForAllThreads) {
  for (const RopeLayout layout :
       {RopeLayout::kHalfSplit, RopeLayout::kInterleaved}) {
    EXPECT_TRUE(test::SameBitsForAllThreads(Turned(Options(layout, 12)),
                                            GetParam(), {{900, 3, 14}}));
  }
}

TEST(RopeGradTest, MatchesCentralDifferenceInF64) {
  for (const RopeLayout layout :
       {RopeLayout::kHalfSplit, RopeLayout::kInterleaved}) {
    RopeOptions options = Options(layout, 4);
    options.scaling = RopeScaling::kYarn;
    options.factor = 4;
    options.original_max_position_embeddings = 32;
    EXPECT_TRUE(test::GradCheck(Turned(options), {test::Normal({5, 2, 6}, 1)}));
  }
}

TEST(RopeValueTest, TurnsPairsByPositionTimesFrequency) {
  const Variable x(
      test::FromDoubles(test::Cpu(), {1, 1, 4}, kF64, {1, 2, 3, 4}));
  const Tensor positions =
      Tensor::FromHost<int32_t>(test::Cpu(), {1}, std::vector<int32_t>{5});
  const auto y =
      ToDoubles(Rope(x, positions, Options(RopeLayout::kHalfSplit, 4)).value());
  // theta 100, pairs at 1 and 0.1 radians per position.
  EXPECT_NEAR(y[0], 1 * std::cos(5.0) - 3 * std::sin(5.0), 1e-12);
  EXPECT_NEAR(y[2], 3 * std::cos(5.0) + 1 * std::sin(5.0), 1e-12);
  EXPECT_NEAR(y[1], 2 * std::cos(0.5) - 4 * std::sin(0.5), 1e-12);
  EXPECT_NEAR(y[3], 4 * std::cos(0.5) + 2 * std::sin(0.5), 1e-12);
}

// Of Llama 3.1.
RopeOptions Llama3() {
  RopeOptions options;
  options.rotary_dim = 128;
  options.theta = 500000;
  options.scaling = RopeScaling::kLlama3;
  options.factor = 8;
  options.original_max_position_embeddings = 8192;
  return options;
}

TEST(RopeFrequencyTest, Llama3KeepsShortAndStretchesLongWavelengths) {
  RopeOptions options = Llama3();
  const std::vector<double> scaled = RopeFrequencies(options);
  options.scaling = RopeScaling::kNone;
  const std::vector<double> plain = RopeFrequencies(options);
  EXPECT_EQ(scaled.front(), plain.front());
  EXPECT_DOUBLE_EQ(scaled.back(), plain.back() / 8);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_LE(scaled[i], plain[i]);
    EXPECT_GE(scaled[i], plain[i] / 8 * (1 - 1e-12));
  }
}

// The blend of Llama 3.1 by its own words: from high_freq_factor turns over the
// original length down to low_freq_factor, the share of the plain frequency
// falls from 1 to 0 along a line.
TEST(RopeFrequencyTest, Llama3BlendsTheMiddleBandAlongALine) {
  RopeOptions options = Llama3();
  options.low_freq_factor = 1.5;
  options.high_freq_factor = 5;
  const std::vector<double> got = RopeFrequencies(options);
  int num_blended = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double plain = std::pow(500000.0, -static_cast<double>(i) / 64);
    const double turns = 8192 * plain / (2 * std::acos(-1.0));
    const double share = std::min(1.0, std::max(0.0, (turns - 1.5) / 3.5));
    num_blended += share > 0 && share < 1;
    EXPECT_NEAR(got[i], share * plain + (1 - share) * plain / 8, 1e-15 * plain)
        << i;
  }
  EXPECT_EQ(num_blended, 6);
}

TEST(RopeFrequencyTest, LinearDividesEveryFrequency) {
  RopeOptions options;
  options.rotary_dim = 10;
  options.theta = 10000;
  options.scaling = RopeScaling::kLinear;
  options.factor = 2.5;
  const std::vector<double> got = RopeFrequencies(options);
  ASSERT_EQ(got.size(), 5u);
  for (size_t i = 0; i < got.size(); ++i) {
    const double want = std::pow(10000.0, -static_cast<double>(i) / 5) / 2.5;
    EXPECT_NEAR(got[i], want, 1e-15 * want) << i;
  }
  EXPECT_EQ(RopeAttentionFactor(options), 1);
}

TEST(RopeFrequencyTest, YarnFactorFollowsTheThreeRules) {
  RopeOptions options;
  options.scaling = RopeScaling::kYarn;
  options.factor = 40;
  EXPECT_NEAR(RopeAttentionFactor(options), 0.1 * std::log(40.0) + 1, 1e-12);
  options.mscale = 1;
  options.mscale_all_dim = 1;
  EXPECT_DOUBLE_EQ(RopeAttentionFactor(options), 1);
  options.attention_factor = 1.5;
  EXPECT_DOUBLE_EQ(RopeAttentionFactor(options), 1.5);
}

// Values of the formula as transformers has it, evaluated outside: gpt_oss
// (fractional bounds) and deepseek_v3 (bounds rounded outwards).
TEST(RopeFrequencyTest, YarnValues) {
  RopeOptions options;
  options.rotary_dim = 64;
  options.scaling = RopeScaling::kYarn;
  options.original_max_position_embeddings = 4096;
  options.theta = 150000;
  options.factor = 32;
  options.truncate = false;
  const std::vector<double> open = RopeFrequencies(options);
  EXPECT_NEAR(open[0], 1.0, 1e-12);
  EXPECT_NEAR(open[8], 0.050813274815461475, 5.08e-14);
  EXPECT_NEAR(open[12], 0.006794959489732219, 6.79e-15);
  EXPECT_NEAR(open[20], 1.818833668168956e-05, 1.82e-17);
  EXPECT_NEAR(open[31], 3.0235114281192144e-07, 3.02e-19);
  EXPECT_NEAR(RopeAttentionFactor(options), 1.34657, 1e-5);
  options.theta = 10000;
  options.factor = 40;
  options.truncate = true;
  const std::vector<double> rounded = RopeFrequencies(options);
  EXPECT_NEAR(rounded[0], 1.0, 1e-12);
  EXPECT_NEAR(rounded[8], 0.1, 1e-13);
  EXPECT_NEAR(rounded[12], 0.026879360111431223, 2.69e-14);
  EXPECT_NEAR(rounded[20], 0.0007905694150420946, 7.91e-16);
  EXPECT_NEAR(rounded[31], 3.3338035804083097e-06, 3.33e-18);
}

// One table for all layers, from positions of either width.
TEST_P(RopeTest, TableIsSharedAndTakesI64) {
  Device& device = test::ContextFor(GetParam().isa, 2).cpu();
  const Variable x(
      test::FromDoubles(device, {3, 2, 8}, GetParam().dtype,
                        ToDoubles(test::Normal({3, 2, 8}, 1).value())));
  const RopeOptions options = Options(RopeLayout::kInterleaved, 6);
  const Tensor narrow =
      Tensor::FromHost<int32_t>(device, {3}, std::vector<int32_t>{4, 0, 70000});
  const Tensor wide =
      Tensor::FromHost<int64_t>(device, {3}, std::vector<int64_t>{4, 0, 70000});
  const RopeTable table = MakeRopeTable(wide, options, kF32);
  for (int layer = 0; layer < 2; ++layer) {
    EXPECT_TRUE(test::SameBits(Rope(x, table).value(),
                               Rope(x, narrow, options).value()));
  }
}

TEST(RopeCheckTest, NamesTableAndShape) {
  const RopeTable table =
      MakeRopeTable(Tensor::Zeros(test::Cpu(), {3}, kI32),
                    Options(RopeLayout::kHalfSplit, 4), kF64);
  const absl::Status s = internal::Guard([&] {
    Rope(test::Normal({2, 1, 4}, 1), table);
  });
  EXPECT_THAT(s.message(), ::testing::HasSubstr("table is f64 [3, 2, 2]"));
  EXPECT_THAT(s.message(), ::testing::HasSubstr("for x f64 [2, 1, 4]"));
}

TEST(RopeCheckTest, NamesRotaryDimAndPositions) {
  const auto refusal = [](DType dtype, int64_t rotary_dim) {
    return std::string(internal::Guard([&] {
                         MakeRopeTable(
                             Tensor::Zeros(test::Cpu(), {3}, dtype),
                             Options(RopeLayout::kHalfSplit, rotary_dim), kF32);
                       }).message());
  };
  EXPECT_EQ(refusal(kI32, 4), "");
  EXPECT_EQ(refusal(kI64, 2), "");
  for (const int64_t bad : {-2, 0, 1, 3, 7}) {
    EXPECT_THAT(refusal(kI32, bad),
                ::testing::HasSubstr(absl::StrCat("rotary_dim is ", bad)));
  }
  for (const DType bad : {kF32, kF64, kBF16, kU8}) {
    EXPECT_THAT(refusal(bad, 4),
                ::testing::HasSubstr(absl::StrCat(
                    "positions is ", ToString(bad), " [3] on cpu")));
  }
}

TEST(RopeCheckTest, NamesBothShapes) {
  const absl::Status s = internal::Guard([] {
    Rope(test::Normal({2, 1, 4}, 1), Tensor::Zeros(test::Cpu(), {3}, kI32),
         Options(RopeLayout::kHalfSplit, 4));
  });
  EXPECT_THAT(s.message(), ::testing::HasSubstr(
                               "positions is i32 [3] on cpu for x [2, 1, 4]"));
}

}  // namespace
}  // namespace espalier
