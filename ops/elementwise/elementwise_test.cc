#include "espalier/ops/elementwise/elementwise.h"

#include "espalier/ops/split.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

enum class Operands { kOne, kSameShape, kRow };

struct Op {
  const char* name;
  Operands operands;
  Variable (*fn)(const std::vector<Variable>& in);
};

const Op kOps[] = {
    {"add", Operands::kSameShape,
     [](const auto& in) { return Add(in[0], in[1]); }},
    {"add row", Operands::kRow,
     [](const auto& in) { return Add(in[0], in[1]); }},
    {"sub", Operands::kSameShape,
     [](const auto& in) { return Sub(in[0], in[1]); }},
    {"mul", Operands::kSameShape,
     [](const auto& in) { return Mul(in[0], in[1]); }},
    {"mul row", Operands::kRow,
     [](const auto& in) { return Mul(in[0], in[1]); }},
    {"add_scaled", Operands::kSameShape,
     [](const auto& in) { return AddScaled(in[0], in[1], -1.75); }},
    {"scale", Operands::kOne,
     [](const auto& in) { return Scale(in[0], 0.375); }},
};

std::vector<Shape> InputsOf(const Op& op, const Shape& shape) {
  if (op.operands == Operands::kOne) return {shape};
  if (op.operands == Operands::kRow) return {shape, {shape[-1]}};
  return {shape, shape};
}

class ElementwiseTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, ElementwiseTest,
                         ::testing::ValuesIn(test::Targets(1e-5, 2e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(ElementwiseTest, MatchesF64Reference) {
  for (const Op& op : kOps) {
    for (const Shape& x : {Shape{0, 8}, Shape{3, 0}, Shape{1, 1}, Shape{3, 7},
                           Shape{2, 3, 33}, Shape{130, 24}}) {
      EXPECT_TRUE(test::MatchesReference(op.fn, GetParam(), InputsOf(op, x)))
          << op.name << " " << ToString(x);
    }
  }
}

TEST_P(ElementwiseTest, SameBitsForAllThreads) {
  for (const Op& op : kOps) {
    EXPECT_TRUE(test::SameBitsForAllThreads(op.fn, GetParam(),
                                            InputsOf(op, {1201, 131})))
        << op.name;
  }
}

// Large outputs go past the caches; the values are the same.
TEST_P(ElementwiseTest, StreamedOutputsMatch) {
  const DType dtype = GetParam().dtype;
  Device& cpu = test::ContextFor(GetParam().isa, 2).cpu();
  const int64_t count = kStreamBytes / SizeOf(dtype) + 77;
  const Tensor x = Tensor::Empty(cpu, {count}, dtype);
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(i % 251 - 100);
    if (dtype == kF32) {
      x.mutable_data<float>()[i] = value;
    } else {
      x.mutable_data<BFloat16>()[i] = BFloat16(value);
    }
  }
  const Tensor y = Scale(Variable(x), 0.5).value();
  int64_t num_wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float value =
        dtype == kF32 ? y.data<float>()[i] : float{y.data<BFloat16>()[i]};
    num_wrong += value != 0.5f * static_cast<float>(i % 251 - 100);
  }
  EXPECT_EQ(num_wrong, 0);
}

TEST(ElementwiseGradTest, MatchesCentralDifferenceInF64) {
  for (const Op& op : kOps) {
    const std::vector<Shape> shapes = InputsOf(op, {3, 7});
    std::vector<Variable> in = {test::Normal(shapes[0], 1)};
    if (op.operands != Operands::kOne) in.push_back(test::Normal(shapes[1], 2));
    EXPECT_TRUE(test::GradCheck(op.fn, in)) << op.name;
  }
}

TEST(ElementwiseGradTest, FrozenOperandsGetNoGradient) {
  for (const Op& op : kOps) {
    const std::vector<Shape> shapes = InputsOf(op, {3, 7});
    const Variable a = test::Normal(shapes[0], 1);
    if (op.operands == Operands::kOne) continue;
    const Variable b = test::Normal(shapes[1], 2);
    EXPECT_TRUE(test::GradCheck(op.fn, {a, test::Frozen(b)})) << op.name;
    EXPECT_TRUE(test::GradCheck(op.fn, {test::Frozen(a), b})) << op.name;
  }
}

TEST(ElementwiseGradTest, OneValueTwice) {
  EXPECT_TRUE(test::GradCheck(
      [](const auto& in) { return Add(in[0], Mul(in[0], in[0])); },
      {test::Normal({3, 7}, 1)}));
}

TEST(ElementwiseCheckTest, NamesBothShapes) {
  for (const Op& op : kOps) {
    if (op.operands == Operands::kOne) continue;
    const absl::Status s = internal::Guard([&op] {
      op.fn({test::Normal({2, 8}, 1), test::Normal({2, 4}, 2)});
    });
    EXPECT_THAT(s.message(), ::testing::HasSubstr("b is [2, 4] for a [2, 8]"))
        << op.name;
  }
  const absl::Status s = internal::Guard([] {
    Sub(test::Normal({2, 8}, 1), test::Normal({8}, 2));
  });
  EXPECT_THAT(s.message(), ::testing::HasSubstr("b is [8] for a [2, 8]"));
}

}  // namespace
}  // namespace espalier
