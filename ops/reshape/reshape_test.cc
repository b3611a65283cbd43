#include "espalier/ops/reshape/reshape.h"

#include "espalier/ops/elementwise/elementwise.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

Variable Folded(const std::vector<Variable>& in) {
  return Reshape(in[0], {-1, 2, 3});
}

class ReshapeTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, ReshapeTest,
                         ::testing::ValuesIn(test::Targets(0, 0)),
                         ::testing::PrintToStringParamName());

TEST_P(ReshapeTest, MatchesF64Reference) {
  EXPECT_TRUE(test::MatchesReference(Folded, GetParam(), {{5, 6}}));
}

TEST(ReshapeGradTest, MatchesCentralDifferenceInF64) {
  EXPECT_TRUE(test::GradCheck(Folded, {test::Normal({5, 6}, 1)}));
  EXPECT_TRUE(test::GradCheck(
      [](const std::vector<Variable>& in) {
        return Mul(Reshape(in[0], {6, 5}), Reshape(in[0], {6, 5}));
      },
      {test::Normal({2, 15}, 1)}));
}

TEST(ReshapeViewTest, SharesStorageAndKeepsZeroRows) {
  const Variable x = test::Normal({5, 6}, 1);
  EXPECT_TRUE(Folded({x}).value().SharesStorage(x.value()));
  EXPECT_EQ(Reshape(test::Normal({0, 6}, 1), {0, 2, 3}).shape(),
            (Shape{0, 2, 3}));
}

TEST(ReshapeCheckTest, NamesBothShapes) {
  const absl::Status s = internal::Guard([] {
    Reshape(test::Normal({2, 8}, 1), {3, 5});
  });
  EXPECT_THAT(s.message(), ::testing::HasSubstr("[2, 8]"));
  EXPECT_THAT(s.message(), ::testing::HasSubstr("3, 5"));
}

}  // namespace
}  // namespace espalier
