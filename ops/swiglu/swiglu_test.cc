#include "espalier/ops/swiglu/swiglu.h"

#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

constexpr Activation kAll[] = {Activation::kSilu, Activation::kGelu,
                               Activation::kGeluTanh};

test::Fn Gated(Activation activation) {
  return [activation](const std::vector<Variable>& in) {
    return GatedActivation(activation, in[0], in[1]);
  };
}

class SwiGluTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, SwiGluTest,
                         ::testing::ValuesIn(test::Targets(2e-6, 1e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(SwiGluTest, MatchesF64Reference) {
  for (const Activation activation : kAll) {
    for (const Shape& x : {Shape{0, 8}, Shape{1, 1}, Shape{3, 7},
                           Shape{2, 3, 33}, Shape{130, 24}}) {
      EXPECT_TRUE(test::MatchesReference(Gated(activation), GetParam(), {x, x}))
          << static_cast<int>(activation) << " " << ToString(x);
    }
  }
}

TEST_P(SwiGluTest, SameBitsForAllThreads) {
  EXPECT_TRUE(test::SameBitsForAllThreads(Gated(Activation::kSilu), GetParam(),
                                          {{1201, 131}, {1201, 131}}));
}

TEST_P(SwiGluTest, SameBitsWhenRecomputed) {
  EXPECT_TRUE(test::SameBitsWhenRecomputed(Gated(Activation::kSilu), GetParam(),
                                           {{13, 37}, {13, 37}}));
}

TEST(SwiGluGradTest, MatchesCentralDifferenceInF64) {
  for (const Activation activation : kAll) {
    EXPECT_TRUE(test::GradCheck(
        Gated(activation), {test::Normal({3, 7}, 1), test::Normal({3, 7}, 2)}))
        << static_cast<int>(activation);
  }
}

TEST(SwiGluGradTest, FrozenInputsGetNoGradient) {
  const Variable gate = test::Normal({3, 7}, 1);
  const Variable up = test::Normal({3, 7}, 2);
  EXPECT_TRUE(
      test::GradCheck(Gated(Activation::kSilu), {test::Frozen(gate), up}));
  EXPECT_TRUE(
      test::GradCheck(Gated(Activation::kSilu), {gate, test::Frozen(up)}));
}

TEST(SwiGluCheckTest, NamesBothShapes) {
  const absl::Status s = internal::Guard([] {
    SwiGlu(test::Normal({2, 8}, 1), test::Normal({2, 4}, 2));
  });
  EXPECT_THAT(s.message(),
              ::testing::HasSubstr("up is [2, 4] for gate [2, 8]"));
}

}  // namespace
}  // namespace espalier
