#include "espalier/ops/kda_gate/kda_gate.h"

#include <cmath>

#include "espalier/autograd/backward.h"
#include "espalier/ops/cast/cast.h"
#include "espalier/ops/elementwise/elementwise.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

// A_log and dt_bias are never narrower than f32.
Variable Wide(const Variable& x) {
  return Cast(x, x.dtype() == kF64 ? kF64 : kF32);
}

test::Fn Bind(double bound) {
  return [bound](const std::vector<Variable>& in) {
    return KdaGate(in[0], Wide(in[1]), Wide(in[2]), {bound});
  };
}

constexpr double kBounds[] = {0, -5, -0.75};

// f, A_log, dt_bias.
std::vector<Shape> ShapesOf(int64_t tokens, int64_t heads, int64_t width) {
  return {{tokens, heads, width}, {heads}, {heads * width}};
}

class KdaGateTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, KdaGateTest,
                         ::testing::ValuesIn(test::Targets(2e-5, 2e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(KdaGateTest, MatchesF64Reference) {
  for (const double bound : kBounds) {
    EXPECT_TRUE(
        test::MatchesReference(Bind(bound), GetParam(), ShapesOf(0, 2, 3)));
    EXPECT_TRUE(
        test::MatchesReference(Bind(bound), GetParam(), ShapesOf(3, 2, 5)));
    EXPECT_TRUE(
        test::MatchesReference(Bind(bound), GetParam(), ShapesOf(70, 3, 40)));
    // One value a head.
    EXPECT_TRUE(
        test::MatchesReference(Bind(bound), GetParam(), {{70, 5}, {5}, {5}}));
  }
}

TEST_P(KdaGateTest, LargeInputsMatch) {
  for (const double bound : kBounds) {
    std::vector<Variable> in;
    for (const Shape& shape : ShapesOf(9, 2, 7)) {
      in.push_back(Variable(
          Scale(test::Normal(shape, in.size() + 1), in.empty() ? 30 : 1)
              .value(),
          true));
    }
    EXPECT_TRUE(test::MatchesReference(Bind(bound), GetParam(), in)) << bound;
  }
}

TEST_P(KdaGateTest, SameBitsForAllThreads) {
  for (const double bound : kBounds) {
    EXPECT_TRUE(test::SameBitsForAllThreads(Bind(bound), GetParam(),
                                            ShapesOf(700, 3, 40)));
  }
}

TEST(KdaGateGradTest, MatchesCentralDifferenceInF64) {
  for (const double bound : kBounds) {
    const std::vector<Variable> all = {
        test::Normal({5, 2, 3}, 1), test::Normal({2}, 2), test::Normal({6}, 3)};
    EXPECT_TRUE(test::GradCheck(Bind(bound), all));
    for (size_t frozen = 0; frozen < 3; ++frozen) {
      std::vector<Variable> in = all;
      in[frozen] = test::Frozen(in[frozen]);
      EXPECT_TRUE(test::GradCheck(Bind(bound), in)) << frozen;
    }
  }
}

TEST_P(KdaGateTest, SameBitsWhenRecomputed) {
  const test::Fn fn = [](const std::vector<Variable>& in) {
    const Variable state = Variable(
        test::FromDoubles(in[0].value().device(), {2}, kF32, {0.5, 1}));
    const Variable bias = Variable(test::FromDoubles(
        in[0].value().device(), {6}, kF32, {1, 2, 3, 4, 5, 6}));
    return KdaGate(in[0], state, bias, {-5});
  };
  EXPECT_TRUE(test::SameBitsWhenRecomputed(fn, GetParam(), {{5, 2, 3}}));
}

// One value of a gate in f64 and in f32.
void ExpectGate(double f, double A_log, double bound, double want) {
  for (const DType dtype : {kF64, kF32}) {
    const auto of = [&](const Shape& shape, double value) {
      return Variable(test::FromDoubles(test::Cpu(), shape, dtype, {value}));
    };
    const Variable g =
        KdaGate(of({1, 1}, f), of({1}, A_log), of({1}, 0), {bound});
    EXPECT_NEAR(ToDoubles(g.value())[0], want,
                (dtype == kF64 ? 1e-10 : 1e-6) * std::abs(want));
  }
}

// Golden numbers of both families.
TEST(KdaGateValueTest, BothFormsAtOnePoint) {
  ExpectGate(-0.4, 0.7, 0, -1.0330858535);
  ExpectGate(-0.4, 0.7, -5, -1.5442500766);
  ExpectGate(50, 0.7, 0, -50 * std::exp(0.7));
}

// A slope of 0 times a huge rate is 0, not NaN.
TEST(KdaGateValueTest, ExtremeRatesGiveFiniteGradients) {
  for (const DType dtype : {kF64, kF32}) {
    for (const double bound : kBounds) {
      const auto of = [&](const Shape& shape,
                          const std::vector<double>& values) {
        return Variable(test::FromDoubles(test::Cpu(), shape, dtype, values),
                        true);
      };
      const Variable f = of({1, 2, 2}, {-3, 2, 0.5, -40});
      const Variable A_log = of({2}, {120, -120});
      const Variable bias = of({4}, {0, 0, 0, 0});
      const Variable g = KdaGate(f, A_log, bias, {bound});
      autograd::Backward(
          g, test::FromDoubles(test::Cpu(), {1, 2, 2}, dtype, {1, 1, 1, 1}));
      for (const Variable& leaf : {f, A_log, bias}) {
        for (const double value : ToDoubles(leaf.grad())) {
          EXPECT_TRUE(std::isfinite(value)) << bound;
        }
      }
    }
  }
}

TEST(KdaGateCheckTest, NamesWhatDoesNotFit) {
  const auto refusal = [](const Shape& A_log, const Shape& bias, double bound) {
    return std::string(internal::Guard([&] {
                         KdaGate(test::Normal({2, 3, 4}, 1),
                                 test::Normal(A_log, 2), test::Normal(bias, 3),
                                 {bound});
                       }).message());
  };
  EXPECT_EQ(refusal({3}, {12}, 0), "");
  EXPECT_THAT(
      refusal({4}, {12}, 0),
      ::testing::HasSubstr("A_log is f64 [4] on cpu for f f64 [2, 3, 4]"));
  EXPECT_THAT(refusal({3}, {4}, 0),
              ::testing::HasSubstr("dt_bias is f64 [4] on cpu for f"));
  EXPECT_THAT(refusal({3}, {12}, 1), ::testing::HasSubstr("lower_bound is 1"));
  const absl::Status no_heads = internal::Guard([] {
    KdaGate(test::Normal({2, 0, 4}, 1), test::Normal({0}, 2),
            test::Normal({0}, 3), {0});
  });
  EXPECT_THAT(no_heads.message(),
              ::testing::HasSubstr("f is f64 [2, 0, 4] on cpu, expected"));
}

}  // namespace
}  // namespace espalier
