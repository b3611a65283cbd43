#include "espalier/ops/rms_norm/rms_norm.h"

#include "espalier/autograd/backward.h"
#include "espalier/ops/cast/cast.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

// Not so small that it could be left out unseen.
constexpr double kEps = 0.03;

struct Form {
  const char* name;
  bool gated;
  test::Fn fn;
};

const std::vector<Form>& Forms() {
  static const auto* forms = new std::vector<Form>{
      {"plain", false,
       [](const auto& in) { return RmsNorm(in[0], in[1], kEps); }},
      {"plus one", false,
       [](const auto& in) {
         return RmsNorm(in[0], in[1], kEps, NormWeight::kPlusOne);
       }},
      {"silu gate", true,
       [](const auto& in) {
         return GatedRmsNorm(in[0], in[1], in[2], kEps, NormGate::kSilu);
       }},
      {"sigmoid gate", true,
       [](const auto& in) {
         return GatedRmsNorm(in[0], in[1], in[2], kEps, NormGate::kSigmoid);
       }},
      {"sigmoid gate, plus one", true,
       [](const auto& in) {
         return GatedRmsNorm(in[0], in[1], in[2], kEps, NormGate::kSigmoid,
                             NormWeight::kPlusOne);
       }},
  };
  return *forms;
}

std::vector<Shape> InputsOf(const Form& form, const Shape& x) {
  if (form.gated) return {x, {x[-1]}, x};
  return {x, {x[-1]}};
}

class RmsNormTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, RmsNormTest,
                         ::testing::ValuesIn(test::Targets(1e-5, 4e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(RmsNormTest, MatchesF64Reference) {
  for (const Form& form : Forms()) {
    for (const Shape& x :
         {Shape{0, 8}, Shape{3, 0}, Shape{1, 1}, Shape{3, 7}, Shape{5, 64},
          Shape{2, 3, 33}, Shape{130, 24}, Shape{2, 300}}) {
      EXPECT_TRUE(
          test::MatchesReference(form.fn, GetParam(), InputsOf(form, x)))
          << form.name << " " << ToString(x);
    }
  }
}

// A weight that stays f32 beside bf16.
Variable Wide(const Variable& x) {
  return Cast(x, x.dtype() == kF64 ? kF64 : kF32);
}

TEST_P(RmsNormTest, WeightMayBeF32) {
  const test::Fn plain = [](const std::vector<Variable>& in) {
    return RmsNorm(in[0], Wide(in[1]), kEps);
  };
  const test::Fn gated = [](const std::vector<Variable>& in) {
    return GatedRmsNorm(in[0], Wide(in[1]), in[2], kEps, NormGate::kSigmoid);
  };
  for (const Shape& x : {Shape{1, 1}, Shape{3, 7}, Shape{5, 64},
                         Shape{2, 4, 33}, Shape{130, 128}}) {
    EXPECT_TRUE(test::MatchesReference(plain, GetParam(), {x, {x[-1]}}))
        << ToString(x);
    EXPECT_TRUE(test::MatchesReference(gated, GetParam(), {x, {x[-1]}, x}))
        << ToString(x);
    const std::vector<Variable> frozen = {
        test::Normal(x, 1), test::Frozen(test::Normal({x[-1]}, 2)),
        test::Normal(x, 3)};
    EXPECT_TRUE(test::MatchesReference(gated, GetParam(), frozen))
        << ToString(x);
  }
}

TEST(RmsNormWeightTest, F32WeightIsNotRounded) {
  Device& device = test::Cpu();
  const Variable x(test::FromDoubles(device, {1, 2}, kBF16, {1, 1}));
  const double w = 1 + 3.0 / 512;  // 1 + 4 / 512 as bf16
  const Variable weight(test::FromDoubles(device, {2}, kF32, {w, w}), true);
  const Variable gate(test::FromDoubles(device, {1, 2}, kBF16, {200, 200}));
  const Variable y = GatedRmsNorm(x, weight, gate, 0, NormGate::kSilu);
  EXPECT_EQ(ToDoubles(y.value())[0], 201);  // 202 with the rounded weight
  autograd::Backward(y, test::FromDoubles(device, {1, 2}, kBF16, {1, 1}));
  EXPECT_EQ(weight.grad().dtype(), kF32);
}

TEST_P(RmsNormTest, MatchesWithFrozenInputs) {
  for (const Form& form : Forms()) {
    const std::vector<Shape> shapes = InputsOf(form, {70, 19});
    for (size_t frozen = 0; frozen < shapes.size(); ++frozen) {
      std::vector<Variable> in = test::NormalInputs(shapes);
      in[frozen] = test::Frozen(in[frozen]);
      EXPECT_TRUE(test::MatchesReference(form.fn, GetParam(), in))
          << form.name << " " << frozen;
    }
  }
}

TEST_P(RmsNormTest, SameBitsForAllThreads) {
  for (const Form& form : Forms()) {
    EXPECT_TRUE(test::SameBitsForAllThreads(form.fn, GetParam(),
                                            InputsOf(form, {1201, 137})))
        << form.name;
  }
}

TEST_P(RmsNormTest, SameBitsWhenRecomputed) {
  for (const Form& form : Forms()) {
    EXPECT_TRUE(test::SameBitsWhenRecomputed(form.fn, GetParam(),
                                             InputsOf(form, {5, 64})))
        << form.name;
  }
}

TEST(RmsNormGradTest, MatchesCentralDifferenceInF64) {
  for (const Form& form : Forms()) {
    std::vector<Variable> in = {test::Normal({3, 7}, 1), test::Normal({7}, 2)};
    if (form.gated) in.push_back(test::Normal({3, 7}, 3));
    EXPECT_TRUE(test::GradCheck(form.fn, in)) << form.name;
  }
}

TEST(RmsNormGradTest, FrozenInputsGetNoGradient) {
  for (const Form& form : Forms()) {
    const std::vector<Variable> all = {
        test::Normal({3, 7}, 1), test::Normal({7}, 2), test::Normal({3, 7}, 3)};
    const size_t num_inputs = form.gated ? 3 : 2;
    for (size_t frozen = 0; frozen < num_inputs; ++frozen) {
      std::vector<Variable> in(all.begin(),
                               all.begin() + static_cast<int>(num_inputs));
      in[frozen] = test::Frozen(in[frozen]);
      EXPECT_TRUE(test::GradCheck(form.fn, in)) << form.name << " " << frozen;
    }
  }
}

TEST(RmsNormCheckTest, NamesBothShapes) {
  const absl::Status weight = internal::Guard([] {
    RmsNorm(test::Normal({2, 8}, 1), test::Normal({4}, 2), kEps);
  });
  EXPECT_THAT(weight.message(),
              ::testing::HasSubstr("weight is [4] for x [2, 8]"));
  const absl::Status gate = internal::Guard([] {
    GatedRmsNorm(test::Normal({2, 8}, 1), test::Normal({8}, 2),
                 test::Normal({2, 4}, 3), kEps, NormGate::kSilu);
  });
  EXPECT_THAT(gate.message(), ::testing::HasSubstr("gate is f64 [2, 4]"));
  EXPECT_THAT(gate.message(), ::testing::HasSubstr("for x f64 [2, 8]"));
}

}  // namespace
}  // namespace espalier
