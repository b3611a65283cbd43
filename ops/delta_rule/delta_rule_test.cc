#include "espalier/ops/delta_rule/delta_rule.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "espalier/autograd/backward.h"
#include "espalier/ops/delta_rule/internal/test_cases.h"
#include "espalier/ops/elementwise/elementwise.h"
#include "espalier/ops/reduce/reduce.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

// NOLINTNEXTLINE(google-build-using-namespace): this folder's own helpers
using namespace delta_rule_test;

test::Fn Outputs(const DeltaRuleOptions& options) {
  return [options](const std::vector<Variable>& in) {
    return Call(in, options).o;
  };
}

test::Fn FinalState(const DeltaRuleOptions& options) {
  return [options](const std::vector<Variable>& in) {
    return Call(in, options).final_state;
  };
}

test::Fn Both(const DeltaRuleOptions& options) {
  return [options](const std::vector<Variable>& in) {
    const DeltaRuleResult result = Call(in, options);
    return Add(Sum(Mul(result.o, result.o)),
               Sum(Mul(result.final_state, result.final_state)));
  };
}

class DeltaRuleTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, DeltaRuleTest,
                         ::testing::ValuesIn(test::Targets(2e-5, 4e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(DeltaRuleTest, ChunksMatchTheRecurrence) {
  for (const Case& c : kLarge) {
    for (const int64_t chunk : {16, 32, 64}) {
      DeltaRuleOptions options = OptionsOf(c);
      options.chunk = chunk;
      EXPECT_TRUE(
          test::MatchesReference(Outputs(options), GetParam(), InputsOf(c)))
          << c.name << " in chunks of " << chunk;
    }
  }
}

TEST_P(DeltaRuleTest, FinalStateMatches) {
  for (const Case& c : kLarge) {
    for (const DeltaRuleForm form :
         {DeltaRuleForm::kChunk, DeltaRuleForm::kToken}) {
      DeltaRuleOptions options = OptionsOf(c);
      options.form = form;
      EXPECT_TRUE(
          test::MatchesReference(FinalState(options), GetParam(), InputsOf(c)))
          << c.name;
    }
  }
}

TEST_P(DeltaRuleTest, TokensMatchTheRecurrence) {
  for (const Case& c : kLarge) {
    DeltaRuleOptions options = OptionsOf(c);
    options.form = DeltaRuleForm::kToken;
    EXPECT_TRUE(
        test::MatchesReference(Outputs(options), GetParam(), InputsOf(c)))
        << c.name;
  }
}

TEST_P(DeltaRuleTest, SameBitsForAllThreads) {
  for (const Case& c : kLarge) {
    if (c.at.back() == 0 || c.heads == c.at.back() || c.groups == 1) continue;
    for (const DeltaRuleForm form :
         {DeltaRuleForm::kChunk, DeltaRuleForm::kToken}) {
      DeltaRuleOptions options = OptionsOf(c);
      options.form = form;
      EXPECT_TRUE(test::SameBitsForAllThreads(Outputs(options), GetParam(),
                                              InputsOf(c)))
          << c.name;
    }
  }
}

TEST(DeltaRuleGradTest, MatchesCentralDifferenceInF64) {
  for (const Case& c : kSmall) {
    EXPECT_TRUE(test::GradCheck(Both(OptionsOf(c)), InputsOf(c))) << c.name;
  }
}

TEST(DeltaRuleGradTest, FrozenInputsGetNoGradient) {
  for (size_t frozen = 0; frozen < 6; ++frozen) {
    std::vector<Variable> inputs = InputsOf(kSmall[2]);
    inputs[frozen] = test::Frozen(inputs[frozen]);
    EXPECT_TRUE(test::GradCheck(Both(OptionsOf(kSmall[2])), inputs)) << frozen;
  }
}

TEST_P(DeltaRuleTest, FrozenInputsMatch) {
  for (size_t frozen = 0; frozen < 6; ++frozen) {
    std::vector<Variable> inputs = InputsOf(kLarge[3]);
    inputs[frozen] = test::Frozen(inputs[frozen]);
    EXPECT_TRUE(test::MatchesReference(Outputs(OptionsOf(kLarge[3])),
                                       GetParam(), inputs))
        << frozen;
  }
}

// The published numbers of one head of width two.
TEST(DeltaRuleGoldenTest, ThreeTokens) {
  const std::vector<Variable> in = {
      Of({3, 1, 2}, {1, 0, .6, .8, 0, 1}),
      Of({3, 1, 2}, {.8, .6, 1, 0, .6, -.8}),
      Of({3, 1, 2}, {1, 2, 0, -1, 3, .5}),
      Of({3, 1, 2}, {-.1, -1, -.5, -.2, -2, -.05}),
      Of({3, 1}, {.5, .9, .25}),
      Of({1, 1, 2, 2}, {0, 0, 0, 0})};
  const std::vector<std::vector<double>> want = {
      {0.2828427125, 0.5656854249, 0.1492363828, -0.0833648962, -0.2852102436,
       0.1970617504},
      {0.4810247221, 0.0262098473, -0.4033481947, 0.2786874001},
      {0.848528, 0.636396, -0.584930, 0.521037, 0.358669, -0.088148},
      {1.100304, 1.388592, -0.963049, -2.047254, -0.015832, 0.828843},
      {0.571133, 0.571133, 0.392173, 0.392173, -0.141421, -0.141421},
      {0, 0, 0.031715, 0.833155, -0.009499, 0.416326},
      {3.426798, -0.752901, -2.335097},
      {0.250305, 0.250305, 0.214492, 0.214492}};
  for (const DType dtype : {kF64, kF32}) {
    for (const DeltaRuleForm form :
         {DeltaRuleForm::kChunk, DeltaRuleForm::kToken}) {
      DeltaRuleOptions options;
      options.cu_seqlens = At({0, 3});
      options.form = form;
      options.final_state = true;
      const auto got =
          RunOn(test::Cpu(), dtype, in, options, std::vector<double>(6, 1.0));
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(got[i].size(), want[i].size());
        for (size_t e = 0; e < want[i].size(); ++e) {
          // The values have ten digits, the gradients six.
          const double tolerance = i >= 2 ? 2e-6 : dtype == kF64 ? 1e-10 : 1e-6;
          EXPECT_NEAR(got[i][e], want[i][e], tolerance) << i << " " << e;
        }
      }
    }
  }
}

// Operands of products are rounded to bf16, sums and the state are not: values
// and gradients are off by less than one step of bf16.
// With products of f32, o and the gradients of q, k and v are off by their own
// rounding alone, the others less.
TEST(DeltaRuleBf16Test, ErrorIsBelowOneStep) {
  const Case c = {"", {0, 300}, 1, 2, 128, 128, false, true, 0.05};
  std::vector<Variable> inputs = InputsOf(c);
  for (size_t i = 0; i < 3; ++i) {
    const Tensor rounded = test::FromDoubles(
        test::Cpu(), inputs[i].shape(), kBF16, ToDoubles(inputs[i].value()));
    inputs[i] = Of(inputs[i].shape(), ToDoubles(rounded));
  }
  const std::vector<double> dout(static_cast<size_t>(300 * 2 * 128), 0.5);
  const auto want = RunOn(test::Cpu(), kF64, inputs, OptionsOf(c), dout);
  for (const bool f32_products : {false, true}) {
    DeltaRuleOptions options = OptionsOf(c);
    options.f32_products = f32_products;
    const auto got = RunOn(test::Cpu(), kBF16, inputs, options, dout);
    for (size_t i = 0; i < want.size(); ++i) {
      double error = 0;
      double size = 0;
      for (size_t e = 0; e < want[i].size(); ++e) {
        error += (got[i][e] - want[i][e]) * (got[i][e] - want[i][e]);
        size += want[i][e] * want[i][e];
      }
      EXPECT_LE(std::sqrt(error / size), f32_products ? 0.0018 : 1.0 / 256)
          << i;
    }
  }
}

// The emulated accelerator gives the bits of the cpu.
TEST(DeltaRuleSimTest, SameBits) {
  Context& context = test::ContextFor(DetectIsa(), 2);
  const std::vector<Variable> inputs = InputsOf(kLarge[3]);
  const auto run = [&](Device& device) {
    std::vector<Variable> in;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor host =
          test::FromDoubles(context.cpu(), inputs[i].shape(),
                            i < 3 ? kBF16 : kF32, ToDoubles(inputs[i].value()));
      in.emplace_back(host.CopyTo(device), true);
    }
    const DeltaRuleResult result = Call(in, OptionsOf(kLarge[3]));
    autograd::Backward(result.o, result.o.value());
    std::vector<std::vector<double>> values = {ToDoubles(result.o.value())};
    for (const Variable& leaf : in) values.push_back(ToDoubles(leaf.grad()));
    return values;
  };
  const absl::Status status = internal::Guard(
      [&] { EXPECT_EQ(run(context.cpu()), run(context.sim())); });
  EXPECT_TRUE(status.ok()) << status;
}

// Twice the tokens, twice the memory.
TEST_P(DeltaRuleTest, MemoryGrowsAsTheTokens) {
  const auto peak = [](int32_t num_tokens) {
    ContextOptions options;
    options.max_isa = GetParam().isa;
    options.num_threads = 2;
    const auto context = std::move(Context::Create(options)).value();
    const Case c = {"", {0, num_tokens}, 1, 2, 16, 16, false, false, 0.1};
    RunOn(context->cpu(), GetParam().dtype, InputsOf(c), OptionsOf(c),
          std::vector<double>(static_cast<size_t>(num_tokens * 2 * 16), 1.0));
    return context->cpu().allocator().stats().peak_allocated;
  };
  const int64_t base = peak(1);  // scratch
  EXPECT_LT(peak(4096) - base, 2.1 * static_cast<double>(peak(2048) - base));
}

std::string Refusal(const std::vector<Variable>& in,
                    const DeltaRuleOptions& options) {
  return std::string(internal::Guard([&] { Call(in, options); }).message());
}

TEST(DeltaRuleCheckTest, NamesWhatDoesNotFit) {
  const Case c = {"", {0, 5}, 2, 4, 3, 2, false, true, 1};
  const std::vector<Variable> good = InputsOf(c);
  EXPECT_EQ(Refusal(good, OptionsOf(c)), "");
  const auto with = [&](size_t i, const Shape& shape) {
    std::vector<Variable> in = good;
    in[i] = test::Normal(shape, 1);
    return Refusal(in, OptionsOf(c));
  };
  EXPECT_THAT(with(1, {5, 2, 4}),
              ::testing::HasSubstr(
                  "k is f64 [5, 2, 4] on cpu for q f64 [5, 2, 3] on cpu"));
  EXPECT_THAT(with(2, {5, 3, 2}),
              ::testing::HasSubstr("3 value heads for 2 query heads"));
  EXPECT_THAT(with(2, {4, 4, 2}), ::testing::HasSubstr("v is f64 [4, 4, 2]"));
  EXPECT_THAT(with(3, {5, 4, 2}), ::testing::HasSubstr("g is f64 [5, 4, 2]"));
  EXPECT_THAT(with(4, {5, 2}), ::testing::HasSubstr("beta is f64 [5, 2]"));
  EXPECT_THAT(with(5, {2, 4, 3, 2}),
              ::testing::HasSubstr("expected f64 [1, 4, 3, 2]"));
  DeltaRuleOptions options = OptionsOf(c);
  options.chunk = 48;
  EXPECT_THAT(Refusal(good, options),
              ::testing::HasSubstr("chunk is 48, expected 16, 32 or 64"));
  options = OptionsOf(c);
  options.cu_seqlens = At({0, 12, 8, 16});
  EXPECT_THAT(Refusal(good, options),
              ::testing::HasSubstr("falls from 12 to 8"));
  options.cu_seqlens = At({0, 4});
  EXPECT_THAT(Refusal(good, options),
              ::testing::HasSubstr("ends at 4 for 5 tokens"));
}

}  // namespace
}  // namespace espalier
