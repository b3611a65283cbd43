#include "espalier/ops/activation/activation.h"

#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

constexpr Activation kAll[] = {Activation::kSilu, Activation::kGelu,
                               Activation::kGeluTanh};

test::Fn Op(Activation activation) {
  return [activation](const std::vector<Variable>& in) {
    return Activate(activation, in[0]);
  };
}

class ActivationTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, ActivationTest,
                         ::testing::ValuesIn(test::Targets(2e-6, 1e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(ActivationTest, MatchesF64Reference) {
  for (const Activation activation : kAll) {
    for (const Shape& x : {Shape{0, 8}, Shape{1, 1}, Shape{3, 7},
                           Shape{2, 3, 33}, Shape{130, 24}}) {
      EXPECT_TRUE(test::MatchesReference(Op(activation), GetParam(), {x}))
          << static_cast<int>(activation) << " " << ToString(x);
    }
  }
}

TEST_P(ActivationTest, MatchesFarOut) {
  std::vector<double> values;
  for (int i = -64; i <= 64; ++i) values.push_back(i * 1.5);
  const Variable x(test::FromDoubles(test::Cpu(), {129}, kF64, values), true);
  for (const Activation activation : kAll) {
    EXPECT_TRUE(test::MatchesReference(Op(activation), GetParam(),
                                       std::vector<Variable>{x}))
        << static_cast<int>(activation);
  }
}

TEST_P(ActivationTest, SameBitsForAllThreads) {
  for (const Activation activation : kAll) {
    EXPECT_TRUE(
        test::SameBitsForAllThreads(Op(activation), GetParam(), {{1201, 131}}));
  }
}

TEST_P(ActivationTest, SameBitsWhenRecomputed) {
  EXPECT_TRUE(test::SameBitsWhenRecomputed(Op(Activation::kSilu), GetParam(),
                                           {{13, 37}}));
}

TEST(ActivationGradTest, MatchesCentralDifferenceInF64) {
  for (const Activation activation : kAll) {
    EXPECT_TRUE(test::GradCheck(Op(activation), {test::Normal({3, 7}, 1)}))
        << static_cast<int>(activation);
  }
}

TEST(ActivationGradTest, FrozenInputGetsNoGradient) {
  EXPECT_FALSE(Silu(test::Frozen(test::Normal({3, 7}, 1))).needs_grad());
}

// Published values: torch.nn.functional at 1 and -2.
TEST(ActivationValueTest, KnownValues) {
  const Variable x(test::FromDoubles(test::Cpu(), {2}, kF64, {1, -2}));
  const std::vector<double> silu = ToDoubles(Silu(x).value());
  EXPECT_NEAR(silu[0], 0.7310585786300049, 1e-12);
  EXPECT_NEAR(silu[1], -0.2384058440442351, 1e-12);
  const std::vector<double> gelu = ToDoubles(Gelu(x).value());
  EXPECT_NEAR(gelu[0], 0.8413447460685429, 1e-12);
  EXPECT_NEAR(gelu[1], -0.0455002638963584, 1e-12);
  const std::vector<double> tanh = ToDoubles(GeluTanh(x).value());
  EXPECT_NEAR(tanh[0], 0.8411919906082768, 1e-12);
  EXPECT_NEAR(tanh[1], -0.0454023059400403, 1e-9);
}

TEST(ActivationCheckTest, NamesTheShape) {
  const Variable x(test::Normal({2, 8}, 1).value().Transpose(0, 1));
  const absl::Status s = internal::Guard([&] { Silu(x); });
  EXPECT_THAT(s.message(), ::testing::HasSubstr("[8, 2]"));
}

}  // namespace
}  // namespace espalier
