#include "espalier/ops/reduce/reduce.h"

#include <cmath>

#include "espalier/ops/elementwise/elementwise.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

Variable SumOf(const std::vector<Variable>& in) { return Sum(in[0]); }
Variable MeanOf(const std::vector<Variable>& in) { return Mean(in[0]); }

class ReduceTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, ReduceTest,
                         ::testing::ValuesIn(test::Targets(2e-5, 1e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(ReduceTest, MatchesF64Reference) {
  for (const Shape& x : {Shape{0, 8}, Shape{}, Shape{1, 1}, Shape{3, 7},
                         Shape{2, 3, 33}, Shape{1300, 59}}) {
    EXPECT_TRUE(test::MatchesReference(SumOf, GetParam(), {x})) << ToString(x);
    if (x.num_elements() == 0) continue;
    EXPECT_TRUE(test::MatchesReference(MeanOf, GetParam(), {x})) << ToString(x);
  }
}

TEST_P(ReduceTest, SameBitsForAllThreads) {
  EXPECT_TRUE(test::SameBitsForAllThreads(SumOf, GetParam(), {{1301, 131}}));
  EXPECT_TRUE(test::SameBitsForAllThreads(MeanOf, GetParam(), {{1301, 131}}));
}

TEST(ReduceGradTest, MatchesCentralDifferenceInF64) {
  for (const auto& fn : {SumOf, MeanOf}) {
    EXPECT_TRUE(test::GradCheck(
        [&](const std::vector<Variable>& in) {
          return fn({Mul(in[0], in[0])});
        },
        {test::Normal({3, 7}, 1)}));
  }
  EXPECT_FALSE(Sum(test::Frozen(test::Normal({3, 7}, 1))).needs_grad());
}

TEST(ReduceValueTest, NoElements) {
  const Variable x(Tensor::Zeros(test::Cpu(), {0, 4}, kF32));
  EXPECT_EQ(ToDoubles(Sum(x).value())[0], 0);
  EXPECT_TRUE(std::isnan(ToDoubles(Mean(x).value())[0]));
}

TEST(ReduceCheckTest, NamesTheShape) {
  const Variable x(test::Normal({2, 8}, 1).value().Transpose(0, 1));
  const absl::Status s = internal::Guard([&] { Sum(x); });
  EXPECT_THAT(s.message(), ::testing::HasSubstr("[8, 2]"));
}

}  // namespace
}  // namespace espalier
