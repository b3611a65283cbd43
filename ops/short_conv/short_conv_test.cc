#include "espalier/ops/short_conv/short_conv.h"

#include <string>
#include <utility>

#include "espalier/autograd/backward.h"
#include "espalier/ops/cast/cast.h"
#include "espalier/ops/elementwise/elementwise.h"
#include "espalier/ops/reduce/reduce.h"
#include "espalier/ops/reshape/reshape.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

CuSeqlens At(std::vector<int32_t> at) {
  return std::make_shared<const std::vector<int32_t>>(std::move(at));
}

// What of the op a function returns.
enum class Part { kY, kFinal, kBoth };

struct Case {
  std::string name;
  std::vector<int32_t> at;
  int64_t width, taps;
  bool silu, initial;
};

const std::vector<Case>& Cases() {
  static const auto* cases = new std::vector<Case>{
      {"plain", {0, 9}, 5, 4, true, false},
      {"no activation", {0, 4, 9}, 3, 4, false, false},
      {"state", {0, 1, 3, 6, 11}, 7, 4, true, true},
      {"empty documents", {0, 0, 5, 5, 9}, 19, 4, true, true},
      {"one tap", {0, 2, 6}, 4, 1, true, false},
      {"eight taps", {0, 3, 20}, 6, 8, true, true},
      {"blocks", {0, 63, 64, 129, 300}, 33, 4, true, true},
      {"pieces", {0, 70}, 1100, 4, true, false},
      {"no tokens", {0, 0}, 6, 4, true, true},
  };
  return *cases;
}

ShortConvOptions OptionsOf(const Case& c) { return {At(c.at), c.silu, true}; }

// x, weight and, when the case says so, the initial state.
test::Fn Bind(const Case& c, Part part) {
  return [c, part](const std::vector<Variable>& in) {
    const ShortConvResult result =
        ShortConv(in[0], in[1], c.initial ? in[2] : Variable(), OptionsOf(c));
    if (part == Part::kY) return result.y;
    if (part == Part::kFinal) return result.final_state;
    return Add(Sum(Mul(result.y, result.y)),
               Sum(Mul(result.final_state, result.final_state)));
  };
}

std::vector<Shape> ShapesOf(const Case& c) {
  std::vector<Shape> shapes = {{c.at.back(), c.width}, {c.width, 1, c.taps}};
  if (c.initial) {
    shapes.push_back(
        {static_cast<int64_t>(c.at.size()) - 1, c.taps - 1, c.width});
  }
  return shapes;
}

std::vector<Variable> InputsOf(const Case& c) {
  return test::NormalInputs(ShapesOf(c));
}

class ShortConvTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, ShortConvTest,
                         ::testing::ValuesIn(test::Targets(2e-5, 4e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(ShortConvTest, MatchesF64Reference) {
  for (const Case& c : Cases()) {
    for (const Part part : {Part::kY, Part::kFinal}) {
      if (part == Part::kFinal && (c.taps == 1 || c.at.back() == 0)) continue;
      EXPECT_TRUE(
          test::MatchesReference(Bind(c, part), GetParam(), InputsOf(c)))
          << c.name;
    }
  }
}

TEST_P(ShortConvTest, WeightMayBeF32) {
  const Case& c = Cases()[2];
  const test::Fn fn = [&](const std::vector<Variable>& in) {
    const DType wide = in[0].dtype() == kF64 ? kF64 : kF32;
    return ShortConv(in[0], Cast(in[1], wide), in[2], OptionsOf(c)).y;
  };
  EXPECT_TRUE(test::MatchesReference(fn, GetParam(), InputsOf(c)));
}

TEST_P(ShortConvTest, SameBitsForAllThreads) {
  const Case c = {"", {0, 63, 64, 129, 700}, 137, 4, true, true};
  EXPECT_TRUE(
      test::SameBitsForAllThreads(Bind(c, Part::kY), GetParam(), ShapesOf(c)));
}

TEST(ShortConvGradTest, MatchesCentralDifferenceInF64) {
  for (const Case& c : Cases()) {
    if (c.at.back() == 0 || c.at.back() > 40) continue;
    EXPECT_TRUE(test::GradCheck(Bind(c, Part::kBoth), InputsOf(c))) << c.name;
  }
}

TEST(ShortConvGradTest, FrozenInputsGetNoGradient) {
  const Case& c = Cases()[2];
  for (size_t frozen = 0; frozen < 3; ++frozen) {
    std::vector<Variable> inputs = InputsOf(c);
    inputs[frozen] = test::Frozen(inputs[frozen]);
    EXPECT_TRUE(test::GradCheck(Bind(c, Part::kBoth), inputs)) << frozen;
  }
}

// By hand: the last tap meets the current token, zeros left of the document.
TEST(ShortConvValueTest, LastTapIsTheCurrentToken) {
  Device& device = test::Cpu();
  const Variable x(test::FromDoubles(device, {3, 1}, kF64, {1, 10, 100}));
  const Variable w(test::FromDoubles(device, {1, 1, 4}, kF64, {5, 3, 2, 7}));
  const ShortConvResult result = ShortConv(
      x, w, Variable(), {At({0, 3}), /*silu=*/false, /*final_state=*/true});
  EXPECT_EQ(ToDoubles(result.y.value()), (std::vector<double>{7, 72, 723}));
  EXPECT_EQ(ToDoubles(result.final_state.value()),
            (std::vector<double>{1, 10, 100}));
}

Variable Rows(const Variable& x, int64_t begin, int64_t end) {
  const std::vector<double> all = ToDoubles(x.value());
  const int64_t width = x.shape()[1];
  return Variable(test::FromDoubles(
                      test::Cpu(), {end - begin, width}, kF64,
                      {all.begin() + begin * width, all.begin() + end * width}),
                  true);
}

// Case N11: cut anywhere, with the state carried over, values and gradients
// are those of the whole.
TEST(ShortConvCutTest, PiecesGiveWhatTheWholeGives) {
  for (const int32_t length : {1, 2, 3, 5, 65}) {
    const Case c = {"", {0, length}, 3, 4, true, true};
    const std::vector<Variable> in = InputsOf(c);
    const Variable whole_x(in[0].value(), true);
    const Variable whole_state(in[2].value(), true);
    const Variable whole_w(in[1].value(), true);
    const ShortConvResult whole =
        ShortConv(whole_x, whole_w, whole_state, OptionsOf(c));
    autograd::Backward(Add(Sum(Mul(whole.y, in[0].Detach())),
                           Sum(Mul(whole.final_state, in[2].Detach()))),
                       test::FromDoubles(test::Cpu(), {}, kF64, {1}));
    for (int32_t cut = 0; cut <= length; ++cut) {
      const Variable first = Rows(in[0], 0, cut);
      const Variable second = Rows(in[0], cut, length);
      const Variable state(in[2].value(), true);
      const Variable w(in[1].value(), true);
      const ShortConvResult a =
          ShortConv(first, w, state, {At({0, cut}), true, true});
      const ShortConvResult b = ShortConv(second, w, a.final_state,
                                          {At({0, length - cut}), true, true});
      autograd::Backward(Add(Add(Sum(Mul(a.y, first.Detach())),
                                 Sum(Mul(b.y, second.Detach()))),
                             Sum(Mul(b.final_state, in[2].Detach()))),
                         test::FromDoubles(test::Cpu(), {}, kF64, {1}));
      std::vector<double> dx = ToDoubles(first.grad());
      const std::vector<double> rest = ToDoubles(second.grad());
      dx.insert(dx.end(), rest.begin(), rest.end());
      const auto near = [&](const Tensor& want,
                            const std::vector<double>& got) {
        const std::vector<double> w_values = ToDoubles(want);
        ASSERT_EQ(w_values.size(), got.size());
        for (size_t i = 0; i < got.size(); ++i) {
          EXPECT_NEAR(got[i], w_values[i], 1e-12) << length << " at " << cut;
        }
      };
      near(whole.final_state.value(), ToDoubles(b.final_state.value()));
      near(whole_x.grad(), dx);
      near(whole_state.grad(), ToDoubles(state.grad()));
      near(whole_w.grad(), ToDoubles(w.grad()));
    }
  }
}

std::string Refusal(const Variable& x, const Variable& weight,
                    const Variable& initial, std::vector<int32_t> at) {
  return std::string(
      internal::Guard([&] {
        ShortConv(x, weight, initial, {At(std::move(at)), true, false});
      }).message());
}

TEST(ShortConvCheckTest, NamesWhatDoesNotFit) {
  const Variable x = test::Normal({5, 6}, 1);
  const Variable w = test::Normal({6, 1, 4}, 2);
  EXPECT_EQ(Refusal(x, w, Variable(), {0, 0, 5, 5}), "");
  EXPECT_THAT(Refusal(x, test::Normal({5, 1, 4}, 2), Variable(), {0, 5}),
              ::testing::HasSubstr(
                  "weight is f64 [5, 1, 4] on cpu for x f64 [5, 6] on cpu"));
  EXPECT_THAT(Refusal(x, test::Normal({6, 1, 9}, 2), Variable(), {0, 5}),
              ::testing::HasSubstr("K from 1 to 8"));
  EXPECT_THAT(Refusal(x, w, test::Normal({1, 3, 5}, 3), {0, 5}),
              ::testing::HasSubstr("expected f64 [1, 3, 6]"));
  EXPECT_THAT(
      Refusal(x, w, Variable(), {0, 12, 8, 16}),
      ::testing::HasSubstr("short_conv: cu_seqlens falls from 12 to 8"));
  EXPECT_THAT(Refusal(x, w, Variable(), {0, 4}),
              ::testing::HasSubstr("ends at 4 for 5 tokens"));
}

}  // namespace
}  // namespace espalier
