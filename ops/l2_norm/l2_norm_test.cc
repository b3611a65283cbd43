#include "espalier/ops/l2_norm/l2_norm.h"

#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

// Not so small that it could be left out, or put outside of the root, unseen.
constexpr double kEps = 0.3;

Variable Norm(const std::vector<Variable>& in) { return L2Norm(in[0], kEps); }

class L2NormTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, L2NormTest,
                         ::testing::ValuesIn(test::Targets(1e-5, 2e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(L2NormTest, MatchesF64Reference) {
  for (const Shape& x : {Shape{0, 8}, Shape{3, 0}, Shape{1, 1}, Shape{3, 7},
                         Shape{5, 3, 64}, Shape{2, 300}}) {
    EXPECT_TRUE(test::MatchesReference(Norm, GetParam(), {x})) << ToString(x);
  }
}

TEST_P(L2NormTest, SameBitsForAllThreads) {
  EXPECT_TRUE(test::SameBitsForAllThreads(Norm, GetParam(), {{1201, 137}}));
}

TEST_P(L2NormTest, SameBitsWhenRecomputed) {
  EXPECT_TRUE(test::SameBitsWhenRecomputed(Norm, GetParam(), {{5, 64}}));
}

TEST(L2NormGradTest, MatchesCentralDifferenceInF64) {
  EXPECT_TRUE(test::GradCheck(Norm, {test::Normal({3, 2, 7}, 1)}));
}

TEST(L2NormValueTest, EpsIsInsideTheRootOnTheSum) {
  const Variable x(test::FromDoubles(test::Cpu(), {1, 2}, kF64, {3, 4}));
  const std::vector<double> y = ToDoubles(L2Norm(x, 11).value());
  EXPECT_DOUBLE_EQ(y[0], 0.5);
  EXPECT_DOUBLE_EQ(y[1], 4.0 / 6);
}

TEST(L2NormCheckTest, NamesAStridedInput) {
  const Variable x(test::Normal({3, 2}, 1).value().Transpose(0, 1));
  EXPECT_THAT(std::string(internal::Guard([&] { L2Norm(x, kEps); }).message()),
              ::testing::HasSubstr("l2_norm: x is f64 [2, 3]"));
}

}  // namespace
}  // namespace espalier
