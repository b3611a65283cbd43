#include "espalier/ops/linear_cross_entropy/linear_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "espalier/autograd/backward.h"
#include "espalier/autograd/mode.h"
#include "espalier/autograd/offload.h"
#include "espalier/autograd/saved_hooks.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

struct Case {
  std::string name;
  int64_t num_tokens, width, vocab;
  bool weighted;
  LinearCrossEntropyOptions options;
};

const Case kSmall[] = {
    {"plain", 5, 3, 7, false, {}},
    {"weighted", 7, 5, 11, true, {}},
    {"z-loss", 4, 3, 6, true, {.z_loss = 0.1}},
    {"scaled", 4, 3, 6, false, {.ignore_index = 2, .logit_scale = 0.4}},
    {"one word", 3, 4, 1, false, {}},
};

// Several tiles and ragged edges.
const Case kLarge[] = {
    {"tiles", 150, 40, 1100, true, {}},
    {"tiles, all", 67, 33, 2500, true, {.logit_scale = 0.7, .z_loss = 0.01}},
    {"one token", 1, 70, 517, false, {}},
    {"no tokens", 0, 8, 30, false, {}},
    {"chunks", 1300, 12, 90, true, {}},
};

// Where ignored labels leave products that need more scratch than those of all
// tokens: one cut of K in place of two, fused columns of B.
const Case kRowsLeft[] = {
    {"520 tokens, 416 left", 520, 576, 517, false, {}},
    {"700 tokens, 560 left", 700, 530, 150, true, {}},
};

// Labels i64 for even widths, i32 for odd ones; every fifth is ignored.
Tensor LabelsFor(const Case& c, Device& device) {
  std::vector<int64_t> labels(static_cast<size_t>(c.num_tokens));
  for (size_t t = 0; t < labels.size(); ++t) {
    labels[t] = static_cast<int64_t>(t * 37 + 3) % c.vocab;
    if (t % 5 == 4) labels[t] = c.options.ignore_index;
  }
  if (c.width % 2 == 0) {
    return Tensor::FromHost<int64_t>(device, {c.num_tokens}, labels);
  }
  return Tensor::FromHost<int32_t>(
      device, {c.num_tokens},
      std::vector<int32_t>(labels.begin(), labels.end()));
}

Tensor WeightsFor(const Case& c, Device& device) {
  if (!c.weighted) return Tensor();
  std::vector<float> weights(static_cast<size_t>(c.num_tokens));
  for (size_t t = 0; t < weights.size(); ++t) {
    weights[t] = t % 3 == 0 ? 0.0f : 0.5f + 0.25f * static_cast<float>(t % 4);
  }
  return Tensor::FromHost<float>(device, {c.num_tokens}, weights);
}

LinearCrossEntropyResult Apply(const Case& c, const std::vector<Variable>& in) {
  Device& device = in[0].value().device();
  return LinearCrossEntropy(in[0], in[1], LabelsFor(c, device),
                            WeightsFor(c, device), c.options);
}

test::Fn Bind(const Case& c) {
  return [c](const std::vector<Variable>& in) { return Apply(c, in).loss; };
}

std::vector<Shape> ShapesOf(const Case& c) {
  return {{c.num_tokens, c.width}, {c.vocab, c.width}};
}

std::vector<Variable> InputsOf(const Case& c, bool frozen) {
  Variable weight = test::Normal({c.vocab, c.width}, 2);
  return {test::Normal({c.num_tokens, c.width}, 1),
          frozen ? test::Frozen(weight) : weight};
}

class LinearCrossEntropyTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, LinearCrossEntropyTest,
                         ::testing::ValuesIn(test::Targets(2e-5, 2e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(LinearCrossEntropyTest, MatchesF64Reference) {
  for (const bool frozen : {true, false}) {
    for (const Case& c : kSmall) {
      EXPECT_TRUE(
          test::MatchesReference(Bind(c), GetParam(), InputsOf(c, frozen)))
          << c.name << " frozen " << frozen;
    }
    for (const Case& c : kLarge) {
      EXPECT_TRUE(
          test::MatchesReference(Bind(c), GetParam(), InputsOf(c, frozen)))
          << c.name << " frozen " << frozen;
    }
  }
}

TEST_P(LinearCrossEntropyTest, AnyNumberOfRowsLeftFitsTheWorkspace) {
  for (const bool frozen : {true, false}) {
    for (const Case& c : kRowsLeft) {
      EXPECT_TRUE(
          test::MatchesReference(Bind(c), GetParam(), InputsOf(c, frozen)))
          << c.name << " frozen " << frozen;
    }
  }
}

TEST_P(LinearCrossEntropyTest, TokenLossesMatchF64Reference) {
  for (const Case& c : kLarge) {
    const auto token_losses = [&](const std::vector<Variable>& in) {
      return Variable(Apply(c, in).token_losses);
    };
    const std::vector<Variable> inputs = InputsOf(c, true);
    EXPECT_TRUE(test::MatchesReference(token_losses, GetParam(),
                                       {test::Frozen(inputs[0]), inputs[1]}))
        << c.name;
  }
}

TEST_P(LinearCrossEntropyTest, LogitsMatchF64Reference) {
  const auto logits = [](const std::vector<Variable>& in) {
    return Logits(in[0], in[1], 0.5);
  };
  const std::vector<Variable> inputs = InputsOf(kLarge[0], true);
  EXPECT_TRUE(test::MatchesReference(logits, GetParam(),
                                     {test::Frozen(inputs[0]), inputs[1]}));
}

// The evaluation path: what has no gradient, of trained and of frozen heads.
TEST_P(LinearCrossEntropyTest, ValuesHaveTheSameBitsForAllThreads) {
  const auto verdict = [&](const test::Fn& fn, const Case& c, bool frozen) {
    const std::vector<Variable> inputs = InputsOf(c, frozen);
    return test::SameBitsForAllThreads(fn, GetParam(),
                                       {test::Frozen(inputs[0]), inputs[1]});
  };
  for (const Case& c : kLarge) {
    if (c.num_tokens <= 1) continue;  // one task at most
    for (const bool frozen : {true, false}) {
      EXPECT_TRUE(verdict(
          [&](const std::vector<Variable>& in) {
            return Variable(Apply(c, in).token_losses);
          },
          c, frozen))
          << c.name << " frozen " << frozen;
      EXPECT_TRUE(verdict(
          [&](const std::vector<Variable>& in) {
            return Variable(Apply(c, in).weight_sum);
          },
          c, frozen))
          << c.name << " frozen " << frozen;
    }
    EXPECT_TRUE(verdict(
        [](const std::vector<Variable>& in) {
          return Logits(in[0], in[1], 0.7);
        },
        c, /*frozen=*/true))
        << c.name;
  }
}

TEST_P(LinearCrossEntropyTest, SameBitsForAllThreads) {
  for (const Case& c : kLarge) {
    if (c.num_tokens <= 1) continue;  // one task at most
    EXPECT_TRUE(test::SameBitsForAllThreads(Bind(c), GetParam(), ShapesOf(c)))
        << c.name;
    const std::vector<double> values =
        ToDoubles(test::Normal(ShapesOf(c)[1], 2).value());
    const auto frozen = [&](const std::vector<Variable>& in) {
      const Tensor& x = in[0].value();
      return Apply(c,
                   {in[0], Variable(test::FromDoubles(
                               x.device(), ShapesOf(c)[1], x.dtype(), values))})
          .loss;
    };
    EXPECT_TRUE(
        test::SameBitsForAllThreads(frozen, GetParam(), {ShapesOf(c)[0]}))
        << c.name;
  }
}

// Losses by token and dx, on inputs of the case with x moved.
struct Outcome {
  std::vector<double> token_losses, dx;
};
Outcome RunFrozen(const Case& c, Device& device, DType dtype,
                  const std::vector<double>& x_values) {
  const Variable x(test::FromDoubles(device, ShapesOf(c)[0], dtype, x_values),
                   true);
  const Variable weight(
      test::FromDoubles(device, ShapesOf(c)[1], dtype,
                        ToDoubles(test::Normal(ShapesOf(c)[1], 2).value())));
  const LinearCrossEntropyResult result = Apply(c, {x, weight});
  autograd::Backward(result.loss);
  return {ToDoubles(result.token_losses), ToDoubles(x.grad())};
}

TEST_P(LinearCrossEntropyTest, TokensDoNotLeak) {
  const Case& c = kLarge[1];
  Device& device = test::ContextFor(GetParam().isa, 2).cpu();
  std::vector<double> x = ToDoubles(InputsOf(c, true)[0].value());
  const Outcome before = RunFrozen(c, device, GetParam().dtype, x);
  x[0] += 1;
  Outcome after = RunFrozen(c, device, GetParam().dtype, x);
  EXPECT_NE(after.token_losses[0], before.token_losses[0]);
  after.token_losses[0] = before.token_losses[0];
  EXPECT_EQ(after.token_losses, before.token_losses);
  std::copy_n(before.dx.begin(), c.width, after.dx.begin());
  EXPECT_EQ(after.dx, before.dx);
}

// Of a trained head's tokens the first H keep what the others compute again.
TEST_P(LinearCrossEntropyTest, EqualTokensHaveEqualGradientsAnywhere) {
  Device& device = test::ContextFor(GetParam().isa, 2).cpu();
  constexpr int64_t kTokens = 50, kWidth = 20, kVocab = 2100;
  const std::vector<double> row =
      ToDoubles(test::Normal({1, kWidth}, 1).value());
  std::vector<double> rows;
  for (int64_t t = 0; t < kTokens; ++t) {
    rows.insert(rows.end(), row.begin(), row.end());
  }
  const Variable x(
      test::FromDoubles(device, {kTokens, kWidth}, GetParam().dtype, rows),
      true);
  const Variable weight(
      test::FromDoubles(device, {kVocab, kWidth}, GetParam().dtype,
                        ToDoubles(test::Normal({kVocab, kWidth}, 2).value())),
      true);
  const Tensor labels = Tensor::FromHost<int32_t>(
      device, {kTokens}, std::vector<int32_t>(kTokens, 1500));
  autograd::Backward(LinearCrossEntropy(x, weight, labels).loss);
  const std::vector<double> dx = ToDoubles(x.grad());
  for (size_t i = 0; i < dx.size(); ++i) {
    ASSERT_EQ(dx[i], dx[i % kWidth]) << "token " << i / kWidth;
  }
}

// Kept exponentials that waited in a file come back read-only: the gradient
// takes memory of its own.
TEST_P(LinearCrossEntropyTest, OffloadedMembersChangeNothing) {
  Device& device = test::ContextFor(GetParam().isa, 2).cpu();
  const auto gradients = [&](autograd::SavedTensorHooks* hooks) {
    std::vector<Variable> in;
    for (const Variable& input : InputsOf(kLarge[1], false)) {
      in.emplace_back(test::FromDoubles(device, input.shape(), GetParam().dtype,
                                        ToDoubles(input.value())),
                      true);
    }
    Variable loss;
    {
      const autograd::SavedTensorScope scope(hooks);
      loss = Apply(kLarge[1], in).loss;
    }
    autograd::Backward(loss);
    return std::make_pair(ToDoubles(in[0].grad()), ToDoubles(in[1].grad()));
  };
  autograd::FileOffload offload(::testing::TempDir(), {.min_bytes = 0});
  EXPECT_EQ(gradients(&offload), gradients(nullptr));
}

// Case N8: no result depends on what memory held before.
TEST_P(LinearCrossEntropyTest, PoisonedMemoryChangesNothing) {
  ContextOptions options;
  options.max_isa = GetParam().isa;
  options.num_threads = 2;
  options.poison_memory = true;
  const auto poisoned = std::move(Context::Create(options)).value();
  for (const Case& c : kLarge) {
    const std::vector<double> x = ToDoubles(InputsOf(c, true)[0].value());
    const Outcome clean = RunFrozen(
        c, test::ContextFor(GetParam().isa, 2).cpu(), GetParam().dtype, x);
    const Outcome got = RunFrozen(c, poisoned->cpu(), GetParam().dtype, x);
    EXPECT_EQ(got.token_losses, clean.token_losses) << c.name;
    EXPECT_EQ(got.dx, clean.dx) << c.name;
  }
}

TEST(LinearCrossEntropyGradTest, MatchesCentralDifferenceInF64) {
  for (const Case& c : kSmall) {
    EXPECT_TRUE(test::GradCheck(Bind(c), InputsOf(c, false))) << c.name;
    EXPECT_TRUE(test::GradCheck(Bind(c), InputsOf(c, true))) << c.name;
    std::vector<Variable> head_only = InputsOf(c, false);
    head_only[0] = test::Frozen(head_only[0]);
    EXPECT_TRUE(test::GradCheck(Bind(c), head_only)) << c.name;
  }
}

TEST(LinearCrossEntropySumTest, SumsWeightsOfCountedTokens) {
  const Case& c = kSmall[1];  // 7 tokens, the fifth ignored
  const LinearCrossEntropyResult result = Apply(c, InputsOf(c, true));
  EXPECT_EQ(ToDoubles(result.weight_sum)[0],
            0.75 + 1.0 + 0.75);  // tokens 1, 2, 5
  const std::vector<double> losses = ToDoubles(result.token_losses);
  const std::vector<double> logits =
      ToDoubles(Logits(InputsOf(c, true)[0], InputsOf(c, true)[1]).value());
  double sum = 0;
  for (int64_t v = 0; v < c.vocab; ++v) {
    sum += std::exp(logits[static_cast<size_t>(v)]);
  }
  EXPECT_NEAR(losses[0], std::log(sum) - logits[3], 1e-12);
  EXPECT_EQ(losses[4], 0);
}

// Case N2: a batch with nothing to learn from is 0, not NaN.
TEST_P(LinearCrossEntropyTest, AllLabelsIgnored) {
  Device& device = test::ContextFor(GetParam().isa, 2).cpu();
  const std::vector<double> ones(24, 1.0);
  const Variable x(test::FromDoubles(device, {3, 8}, GetParam().dtype, ones),
                   true);
  const Variable weight(
      test::FromDoubles(device, {3, 8}, GetParam().dtype, ones), true);
  const Tensor labels =
      Tensor::FromHost<int32_t>(device, {3}, std::vector<int32_t>(3, -100));
  for (const bool frozen : {true, false}) {
    const LinearCrossEntropyResult result =
        LinearCrossEntropy(x, frozen ? weight.Detach() : weight, labels);
    EXPECT_EQ(ToDoubles(result.loss.value()), std::vector<double>{0});
    EXPECT_EQ(ToDoubles(result.weight_sum), std::vector<double>{0});
    EXPECT_EQ(ToDoubles(result.token_losses), std::vector<double>(3, 0));
    autograd::Backward(result.loss);
    EXPECT_EQ(ToDoubles(x.grad()), std::vector<double>(24, 0));
  }
  EXPECT_EQ(ToDoubles(weight.grad()), std::vector<double>(24, 0));
}

std::string Refusal(const Variable& x, const Variable& weight,
                    const Tensor& labels,
                    const Tensor& token_weights = Tensor()) {
  return std::string(internal::Guard([&] {
                       LinearCrossEntropy(x, weight, labels, token_weights);
                     }).message());
}

TEST(LinearCrossEntropyCheckTest, NamesWhatDoesNotFit) {
  const Variable x = test::Normal({3, 4}, 1);
  const Variable weight = test::Normal({6, 4}, 1);
  const auto labels = [](const std::vector<int32_t>& values) {
    return Tensor::FromHost<int32_t>(
        test::Cpu(), {static_cast<int64_t>(values.size())}, values);
  };
  EXPECT_EQ(Refusal(x, weight, labels({0, -100, 5})), "");
  EXPECT_THAT(
      Refusal(x, test::Normal({6, 5}, 1), labels({0, 1, 2})),
      ::testing::HasSubstr("weight is f64 [6, 5] on cpu for x f64 [3, 4]"));
  EXPECT_THAT(Refusal(x, weight, labels({0, 1})),
              ::testing::HasSubstr("labels are i32 [2] on cpu for 3 tokens"));
  EXPECT_THAT(Refusal(x, weight, labels({0, 1, 2}), labels({0, 1, 2})),
              ::testing::HasSubstr("token_weights are i32 [3] on cpu"));
  EXPECT_EQ(Refusal(x, weight, labels({0, 6, 2})),
            "label 6 at position 1, expected [0, 6) or -100");
  EXPECT_EQ(Refusal(x, weight, labels({0, 1, -1})),
            "label -1 at position 2, expected [0, 6) or -100");
}

TEST(LogitsCheckTest, NamesWhatDoesNotFit) {
  const auto refusal = [](const Variable& x, const Variable& weight) {
    return std::string(internal::Guard([&] { Logits(x, weight); }).message());
  };
  const Variable x = test::Normal({3, 4}, 1);
  EXPECT_EQ(refusal(x, test::Normal({6, 4}, 1)), "");
  EXPECT_THAT(
      refusal(x, test::Normal({6, 5}, 1)),
      ::testing::HasSubstr("weight is f64 [6, 5] on cpu for x f64 [3, 4]"));
  EXPECT_THAT(refusal(x, Variable(Tensor::Zeros(test::Cpu(), {6, 4}, kF32))),
              ::testing::HasSubstr("weight is f32 [6, 4] on cpu"));
  EXPECT_THAT(refusal(test::Normal({12}, 1), test::Normal({6, 4}, 1)),
              ::testing::HasSubstr("x is f64 [12] on cpu"));
  EXPECT_THAT(
      refusal(Variable(x.value().Transpose(0, 1)), test::Normal({6, 3}, 1)),
      ::testing::HasSubstr("x is f64 [4, 3] on cpu"));
}

}  // namespace
}  // namespace espalier
