#include "espalier/ops/layer_norm/layer_norm.h"

#include "espalier/autograd/backward.h"
#include "espalier/ops/split.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

Variable Norm(const std::vector<Variable>& in) {
  return LayerNorm(in[0], in[1], in[2], /*eps=*/0.03);
}

class LayerNormTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, LayerNormTest,
                         ::testing::ValuesIn(test::Targets(1e-5, 4e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(LayerNormTest, MatchesF64Reference) {
  for (const Shape& x :
       {Shape{0, 8}, Shape{3, 0}, Shape{1, 1}, Shape{3, 7}, Shape{5, 64},
        Shape{2, 3, 33}, Shape{130, 24}, Shape{2, 300}}) {
    EXPECT_TRUE(test::MatchesReference(Norm, GetParam(), {x, {x[-1]}, {x[-1]}}))
        << ToString(x);
  }
}

TEST_P(LayerNormTest, MatchesWithFrozenOrAbsentInputs) {
  for (size_t frozen = 0; frozen < 3; ++frozen) {
    std::vector<Variable> in = {test::Normal({70, 19}, 1),
                                test::Normal({19}, 2), test::Normal({19}, 3)};
    in[frozen] = test::Frozen(in[frozen]);
    EXPECT_TRUE(test::MatchesReference(Norm, GetParam(), in)) << frozen;
  }
  EXPECT_TRUE(test::MatchesReference(
      Norm, GetParam(),
      std::vector<Variable>{test::Normal({70, 19}, 1), test::Normal({19}, 2),
                            Variable()}));
  EXPECT_TRUE(test::MatchesReference(
      Norm, GetParam(),
      std::vector<Variable>{test::Normal({70, 19}, 1),
                            test::Frozen(test::Normal({19}, 2)),
                            test::Frozen(test::Normal({19}, 3))}));
}

TEST_P(LayerNormTest, SameBitsForAllThreads) {
  EXPECT_TRUE(test::SameBitsForAllThreads(Norm, GetParam(),
                                          {{1201, 137}, {137}, {137}}));
}

// Gradients of rows that go past the caches equal those of the same rows alone.
TEST_P(LayerNormTest, StreamedGradientsMatch) {
  Device& device = test::ContextFor(GetParam().isa, 2).cpu();
  const DType dtype = GetParam().dtype;
  const int64_t width = 4096;
  const int64_t rows = kStreamBytes / (width * SizeOf(dtype));
  const Tensor x = Tensor::Empty(device, {rows, width}, dtype);
  for (int64_t i = 0; i < rows * width; ++i) {
    const auto value = static_cast<float>(i * 7 % 1009) * 0.01f;
    if (dtype == kF32) {
      x.mutable_data<float>()[i] = value;
    } else {
      x.mutable_data<BFloat16>()[i] = BFloat16(value);
    }
  }
  const Tensor weight = x.Slice(0, 1, 1).Reshape({width});
  const auto gradient = [&](int64_t begin, int64_t count) {
    const Variable part(x.Slice(0, begin, count), true);
    const Variable y =
        Norm({part, Variable(weight, true), Variable(weight, true)});
    autograd::Backward(y, x.Slice(0, begin, count));
    return part.grad();
  };
  const Tensor dx = gradient(0, rows);
  ASSERT_GE(dx.num_bytes(), kStreamBytes);
  for (const int64_t t : {int64_t{0}, rows - 1}) {
    EXPECT_EQ(ToDoubles(dx.Slice(0, t, 1)), ToDoubles(gradient(t, 1))) << t;
  }
}

TEST(LayerNormGradTest, MatchesCentralDifferenceInF64) {
  const std::vector<Variable> all = {
      test::Normal({3, 7}, 1), test::Normal({7}, 2), test::Normal({7}, 3)};
  EXPECT_TRUE(test::GradCheck(Norm, all));
  for (size_t frozen = 0; frozen < 3; ++frozen) {
    std::vector<Variable> in = all;
    in[frozen] = test::Frozen(in[frozen]);
    EXPECT_TRUE(test::GradCheck(Norm, in)) << frozen;
  }
}

TEST(LayerNormCheckTest, NamesBothShapes) {
  const absl::Status s = internal::Guard([] {
    LayerNorm(test::Normal({2, 8}, 1), test::Normal({8}, 2),
              test::Normal({4}, 3), 1e-5);
  });
  EXPECT_THAT(s.message(),
              ::testing::HasSubstr("bias is f64 [4] on cpu for x f64 [2, 8]"));
}

}  // namespace
}  // namespace espalier
