#include "espalier/ops/softmax/softmax.h"

#include <cmath>
#include <limits>

#include "espalier/ops/elementwise/elementwise.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

// Scores as wide as those of a trained head.
Variable Soft(const std::vector<Variable>& in) {
  return Softmax(Scale(in[0], 5));
}

class SoftmaxTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, SoftmaxTest,
                         ::testing::ValuesIn(test::Targets(3e-6, 4e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(SoftmaxTest, MatchesF64Reference) {
  for (const Shape& x :
       {Shape{0, 8}, Shape{3, 0}, Shape{1, 1}, Shape{3, 7}, Shape{5, 64},
        Shape{2, 3, 33}, Shape{2, 300}, Shape{3, 8251}}) {
    EXPECT_TRUE(test::MatchesReference(Soft, GetParam(), {x})) << ToString(x);
  }
}

TEST_P(SoftmaxTest, SameBitsForAllThreads) {
  EXPECT_TRUE(test::SameBitsForAllThreads(Soft, GetParam(), {{1201, 137}}));
}

TEST_P(SoftmaxTest, ExtremeRows) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  Device& device = test::ContextFor(GetParam().isa, 1).cpu();
  const Variable x(test::FromDoubles(device, {5, 3}, GetParam().dtype,
                                     {1e38, -1e38, 1e38,    //
                                      -kInf, 2, -kInf,      //
                                      -3e38, -3e38, -3e38,  //
                                      -kInf, -kInf, -kInf,  //
                                      1, std::nan(""), 1}));
  const std::vector<double> y = ToDoubles(Softmax(x).value());
  EXPECT_THAT(std::vector<double>(y.begin(), y.begin() + 6),
              ::testing::ElementsAre(0.5, 0, 0.5, 0, 1, 0));
  for (int i = 6; i < 9; ++i) EXPECT_NEAR(y[size_t(i)], 1.0 / 3, 2e-3);
  for (int i = 9; i < 15; ++i) EXPECT_TRUE(std::isnan(y[size_t(i)])) << i;
}

// Rows that go past the caches equal the same rows alone.
TEST_P(SoftmaxTest, StreamedRowsMatch) {
  Device& device = test::ContextFor(GetParam().isa, 2).cpu();
  const int64_t width = 65536;
  const int64_t rows = 150;
  const Tensor x = Tensor::Empty(device, {rows, width}, GetParam().dtype);
  for (int64_t i = 0; i < rows * width; ++i) {
    const auto value = static_cast<float>((i * 7) % 1009) * 0.01f;
    if (GetParam().dtype == kF32) {
      x.mutable_data<float>()[i] = value;
    } else {
      x.mutable_data<BFloat16>()[i] = BFloat16(value);
    }
  }
  const Tensor y = Softmax(Variable(x)).value();
  for (const int64_t t : {int64_t{0}, rows - 1}) {
    EXPECT_EQ(ToDoubles(y.Slice(0, t, 1)),
              ToDoubles(Softmax(Variable(x.Slice(0, t, 1))).value()));
  }
}

TEST(SoftmaxGradTest, MatchesCentralDifferenceInF64) {
  EXPECT_TRUE(test::GradCheck([](const auto& in) { return Softmax(in[0]); },
                              {test::Normal({3, 7}, 1)}));
}

TEST(SoftmaxGradTest, FrozenInputGetsNoGradient) {
  EXPECT_FALSE(Softmax(test::Frozen(test::Normal({3, 7}, 1))).needs_grad());
}

TEST(SoftmaxCheckTest, NamesTheShape) {
  const Variable x(test::Normal({2, 8}, 1).value().Transpose(0, 1));
  const absl::Status s = internal::Guard([&] { Softmax(x); });
  EXPECT_THAT(s.message(), ::testing::HasSubstr("[8, 2]"));
}

}  // namespace
}  // namespace espalier
