#include "espalier/ops/rms_norm/rms_norm.h"

#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

Variable Norm(const std::vector<Variable>& in) {
  return RmsNorm(in[0], in[1], /*eps=*/1e-6);
}

class RmsNormTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, RmsNormTest,
                         ::testing::ValuesIn(test::Targets(1e-5, 4e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(RmsNormTest, MatchesF64Reference) {
  for (const Shape& x : {Shape{0, 8}, Shape{1, 1}, Shape{3, 7}, Shape{5, 64},
                         Shape{2, 3, 33}, Shape{130, 24}}) {
    EXPECT_TRUE(test::MatchesReference(Norm, GetParam(), {x, {x[-1]}}))
        << ToString(x);
  }
}

TEST_P(RmsNormTest, SameBitsForAllThreads) {
  EXPECT_TRUE(test::SameBitsForAllThreads(Norm, GetParam(), {{201, 37}, {37}}));
}

TEST(RmsNormGradTest, MatchesCentralDifferenceInF64) {
  EXPECT_TRUE(
      test::GradCheck(Norm, {test::Normal({3, 7}, 1), test::Normal({7}, 2)}));
}

TEST(RmsNormGradTest, FrozenWeightGetsNoGradient) {
  EXPECT_TRUE(test::GradCheck(
      Norm, {test::Normal({3, 7}, 1), test::Frozen(test::Normal({7}, 2))}));
}

TEST(RmsNormCheckTest, NamesBothShapes) {
  const absl::Status s = internal::Guard([] {
    Norm({test::Normal({2, 8}, 1), test::Normal({4}, 2)});
  });
  EXPECT_THAT(s.message(), ::testing::HasSubstr("weight is [4] for x [2, 8]"));
}

}  // namespace
}  // namespace espalier
