#include "espalier/autograd/recompute.h"

#include <memory>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/autograd/backward.h"
#include "espalier/autograd/memo.h"
#include "espalier/autograd/mode.h"
#include "espalier/autograd/rng_stream.h"
#include "espalier/tests/support/op_check.h"
#include "espalier/tests/support/tiny_ops.h"

namespace espalier {
namespace {

using autograd::Recompute;
using autograd::RecomputeOne;
using autograd::RecomputePolicy;
using test::TinyAdd;
using test::TinyDropout;
using test::TinyExpensive;
using test::TinyMul;
using test::TinyRoute;
using test::TinySin;

using Inputs = absl::Span<const Variable>;

constexpr RecomputePolicy kPolicies[] = {RecomputePolicy::kNone,
                                         RecomputePolicy::kSelective,
                                         RecomputePolicy::kFull};
constexpr int kLayers = 3;

// f32 values, whose sums show the order of their terms.
Variable F32(uint64_t seed, bool needs_grad = true) {
  return Variable(test::FromDoubles(test::Cpu(), {8}, kF32,
                                    ToDoubles(test::Normal({8}, seed).value())),
                  needs_grad);
}

struct Outcome {
  std::vector<double> value;
  std::vector<std::vector<double>> gradients;
  uint64_t position = 0;
  int expensive_runs = 0;
  friend bool operator==(const Outcome& a, const Outcome& b) {
    return a.value == b.value && a.gradients == b.gradients &&
           a.position == b.position;
  }
};

// Layers in regions, each with a region inside. x0 goes into every layer
// beside its own input; `tied` is a parameter of all; both are captured by some
// layers and given to others.
Outcome RunModel(RecomputePolicy outer, RecomputePolicy inner) {
  Outcome outcome;
  autograd::RngStream rng({7, 1});
  const Variable x0 = F32(1);
  const Variable tied = F32(2);
  std::vector<Variable> leaves{x0, tied};
  const Variable start = TinyMul(x0, tied);
  Variable x = start;
  for (int layer = 0; layer < kLayers; ++layer) {
    const Variable weight = F32(10 + static_cast<uint64_t>(layer));
    const Variable frozen = F32(20 + static_cast<uint64_t>(layer), false);
    leaves.push_back(weight);
    int* const runs = &outcome.expensive_runs;
    const std::vector<Variable> inputs{x, weight, start};
    x = RecomputeOne(
        outer, "layer", inputs,
        [tied, frozen, start, inner, runs, &rng](Inputs in) {
          const Variable h = TinySin(in[0]);
          const Variable a = TinyExpensive(h, in[1], runs);
          const Variable given[] = {a, h};
          const Variable mixed = RecomputeOne(
              inner, "mlp", given, [tied, frozen, runs, &rng](Inputs deep) {
                const Variable gate =
                    TinyExpensive(deep[0], TinyMul(tied, frozen), runs);
                const Variable dropped = TinyDropout(gate, rng);
                return TinyMul(TinyRoute(dropped), TinySin(deep[1]));
              });
          const Variable residual = TinyAdd(mixed, TinyAdd(in[0], start));
          return TinyMul(TinyDropout(residual, rng), TinyAdd(in[2], tied));
        });
  }
  outcome.value = ToDoubles(x.value());
  autograd::Backward(
      TinyAdd(TinyMul(x, start), x),
      test::FromDoubles(test::Cpu(), {8}, kF32,
                        ToDoubles(test::Normal({8}, 99).value())));
  for (const Variable& leaf : leaves) {
    outcome.gradients.push_back(ToDoubles(leaf.grad()));
  }
  outcome.position = rng.position();
  return outcome;
}

TEST(RecomputeTest, SameBitsUnderEveryPairOfPolicies) {
  const Outcome want = RunModel(RecomputePolicy::kNone, RecomputePolicy::kNone);
  for (const RecomputePolicy outer : kPolicies) {
    for (const RecomputePolicy inner : kPolicies) {
      EXPECT_TRUE(RunModel(outer, inner) == want)
          << static_cast<int>(outer) << " " << static_cast<int>(inner);
    }
  }
}

TEST(RecomputeTest, ExpensiveOpsRunAsOftenAsThePoliciesSay) {
  const auto runs = [](RecomputePolicy outer, RecomputePolicy inner) {
    return RunModel(outer, inner).expensive_runs / kLayers;
  };
  constexpr auto kNone = RecomputePolicy::kNone;
  constexpr auto kSelective = RecomputePolicy::kSelective;
  constexpr auto kFull = RecomputePolicy::kFull;
  // One in the layer itself, one in the region inside.
  for (const RecomputePolicy outer : {kNone, kSelective}) {
    EXPECT_EQ(runs(outer, kNone), 1 + 1);
    EXPECT_EQ(runs(outer, kSelective), 1 + 1);
    EXPECT_EQ(runs(outer, kFull), 1 + 2);
  }
  EXPECT_EQ(runs(kFull, kNone), 2 + 2);
  EXPECT_EQ(runs(kFull, kSelective), 2 + 2);
  EXPECT_EQ(runs(kFull, kFull), 2 + 3);
}

TEST(RecomputeTest, ParametersAloneNeedGradients) {
  for (const RecomputePolicy policy : kPolicies) {
    const Variable frozen = F32(1, false);
    const Variable weight = F32(2);
    const Variable y = RecomputeOne(policy, "r", {&frozen, 1}, [&](Inputs in) {
      return TinyMul(in[0], weight);
    });
    EXPECT_TRUE(y.needs_grad());
    const Variable z = RecomputeOne(
        policy, "none", {}, [&](Inputs) { return TinyMul(weight, frozen); });
    autograd::Backward(TinyAdd(y, z), F32(3).value());
    const Variable twice = TinyAdd(frozen, frozen);
    EXPECT_EQ(ToDoubles(weight.grad()),
              ToDoubles(TinyMul(twice, F32(3)).value()));
    EXPECT_FALSE(frozen.grad());
  }
}

TEST(RecomputeTest, NothingIsKeptWhereNoGradientIsWanted) {
  int runs = 0;
  const Variable x = F32(1, false);
  const auto fn = [&](Inputs in) {
    EXPECT_FALSE(autograd::Recomputing());
    return TinyExpensive(in[0], in[0], &runs);
  };
  EXPECT_FALSE(
      RecomputeOne(RecomputePolicy::kFull, "r", {&x, 1}, fn).needs_grad());
  const Variable wanted = F32(1);
  const NoGrad no_grad;
  EXPECT_FALSE(
      RecomputeOne(RecomputePolicy::kFull, "r", {&wanted, 1}, fn).needs_grad());
  EXPECT_EQ(runs, 2);
}

// Results that are inputs, captured variables, each other, integers, absent,
// without gradient or never used.
TEST(RecomputeTest, ResultsOfEveryKind) {
  std::vector<std::vector<double>> want;
  for (const RecomputePolicy policy : kPolicies) {
    const Variable x = F32(1);
    const Variable captured = F32(2);
    const Variable before = TinySin(x);
    const std::vector<Variable> inputs{before, Variable(), captured};
    const std::vector<Variable> out =
        Recompute(policy, "r", inputs, [&](Inputs in) {
          EXPECT_FALSE(in[1]);
          const Variable a = TinyMul(in[0], captured);
          const Variable b = TinySin(a);
          return std::vector<Variable>{
              a,          b,
              a,          in[0],
              captured,   b.Detach(),
              Variable(), Variable(Tensor::Zeros(test::Cpu(), {2}, kI32)),
              TinySin(b)};
        });
    ASSERT_EQ(out.size(), 9u);
    const std::vector<bool> needs{true,  true,  true,  true, true,
                                  false, false, false, true};
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(out[i].needs_grad(), needs[i]) << i;
    }
    EXPECT_FALSE(out[6]);
    EXPECT_TRUE(out[4].is_leaf());
    EXPECT_FALSE(out[0].is_leaf());
    // Interleaves the uses, so that the order of sums shows.
    Variable y = TinyMul(out[0], out[3]);
    y = TinyAdd(y, TinyMul(out[1], before));
    y = TinyAdd(y, TinyMul(out[2], out[4]));
    y = TinyAdd(y, TinyMul(out[3], out[5]));
    y = TinyAdd(y, TinyMul(before, out[0]));
    autograd::Backward(y, F32(5).value());
    const std::vector<std::vector<double>> got{ToDoubles(x.grad()),
                                               ToDoubles(captured.grad())};
    if (want.empty()) want = got;
    EXPECT_EQ(got, want);
  }
}

// A decision is not taken again, though its scores moved by rounding.
TEST(RecomputeTest, DecisionsAreReplayed) {
  std::vector<double> want;
  for (const RecomputePolicy policy : kPolicies) {
    const Variable x = F32(1);
    // Equal scores: the first of each pair wins.
    const Variable base(Tensor::Zeros(test::Cpu(), {8}, kF32));
    const Variable y = RecomputeOne(policy, "r", {&x, 1}, [&](Inputs in) {
      Tensor noise = Tensor::Zeros(test::Cpu(), {8}, kF32);
      if (autograd::Recomputing()) noise.mutable_data<float>()[1] = 1e-30f;
      const Variable scores = TinyAdd(TinyMul(in[0], base), Variable(noise));
      return TinyMul(TinyAdd(TinyRoute(scores), in[0]), in[0]);
    });
    autograd::Backward(y, F32(2).value());
    const std::vector<double> got = ToDoubles(x.grad());
    if (want.empty()) want = got;
    EXPECT_EQ(got, want);
  }
  // Seen from the masks themselves.
  std::vector<std::vector<double>> masks;
  const Variable x = F32(1);
  const Variable y =
      RecomputeOne(RecomputePolicy::kFull, "r", {&x, 1}, [&](Inputs in) {
        const Tensor mask = autograd::MemoOne("mask", [&] {
          return test::FromDoubles(
              test::Cpu(), {8}, kF32,
              std::vector<double>(8, autograd::Recomputing() ? 1 : 0));
        });
        masks.push_back(ToDoubles(mask));
        return TinyMul(in[0], Variable(mask));
      });
  autograd::Backward(y, F32(2).value());
  ASSERT_EQ(masks.size(), 2u);
  EXPECT_EQ(masks[0], masks[1]);
}

TEST(RecomputeTest, RandomNumbersAreReplayedAfterTheStreamMovedOn) {
  std::vector<std::vector<double>> want;
  for (const RecomputePolicy policy : kPolicies) {
    autograd::RngStream rng({3, 9}, 256);
    const Variable x = F32(1);
    const Variable y = RecomputeOne(policy, "r", {&x, 1}, [&](Inputs in) {
      return TinyDropout(TinyDropout(TinySin(in[0]), rng), rng);
    });
    EXPECT_EQ(rng.Take(1000).first, 3u * 256);
    autograd::Backward(y, F32(2).value());
    EXPECT_EQ(rng.position(), (3u + 4) * 256);
    const std::vector<std::vector<double>> got{ToDoubles(y.value()),
                                               ToDoubles(x.grad())};
    if (want.empty()) want = got;
    EXPECT_EQ(got, want);
  }
}

// Several graphs alive at once, walked in another order than recorded.
TEST(RecomputeTest, GraphsMayBeWalkedInAnyOrder) {
  std::vector<std::vector<double>> want;
  for (const RecomputePolicy policy : kPolicies) {
    const Variable weight = F32(1);
    std::vector<Variable> roots;
    for (uint64_t i = 0; i < 3; ++i) {
      const Variable x = F32(10 + i);
      roots.push_back(RecomputeOne(policy, "r", {&x, 1}, [weight](Inputs in) {
        return TinyMul(TinyMul(in[0], weight), TinySin(weight));
      }));
    }
    for (const size_t i : {2, 0, 1}) {
      autograd::Backward(roots[i], F32(20 + i).value());
    }
    const std::vector<std::vector<double>> got{ToDoubles(weight.grad())};
    if (want.empty()) want = got;
    EXPECT_EQ(got, want);
  }
}

TEST(RecomputeTest, LongChainOfRegionsThatCaptureOneAnother) {
  const Variable x = test::Leaf(1, 1);
  Variable y = x;
  for (int i = 0; i < 20'000; ++i) {
    y = RecomputeOne(RecomputePolicy::kFull, "r", {},
                     [y, x](Inputs) { return TinyAdd(y, x); });
  }
  autograd::Backward(y);
  EXPECT_EQ(ToDoubles(x.grad())[0], 20'001);
  for (int i = 0; i < 20'000; ++i) {
    y = RecomputeOne(RecomputePolicy::kFull, "r", {},
                     [y, x](Inputs) { return TinyAdd(y, x); });
  }
}

}  // namespace
}  // namespace espalier
