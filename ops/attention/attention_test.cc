#include "espalier/ops/attention/attention.h"

#include <cmath>
#include <limits>
#include <string>

#include "espalier/autograd/backward.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

std::shared_ptr<const std::vector<int32_t>> Documents(
    const std::vector<int32_t>& lengths) {
  auto at = std::make_shared<std::vector<int32_t>>(1, 0);
  for (const int32_t length : lengths) at->push_back(at->back() + length);
  return at;
}

// q, k, v and, when given, sinks.
test::Fn Bind(const AttentionOptions& options) {
  return [options](const std::vector<Variable>& in) {
    return Attention(in[0], in[1], in[2], options,
                     in.size() > 3 ? in[3] : Variable());
  };
}

struct Case {
  std::string name;
  std::vector<int32_t> lengths;
  int64_t num_heads, num_groups, qk_width, v_width;
  bool causal, sinks;
  int64_t window;
  double soft_cap;
};

AttentionOptions OptionsOf(const Case& c) {
  AttentionOptions options;
  options.cu_seqlens = Documents(c.lengths);
  options.causal = c.causal;
  options.window = c.window;
  options.soft_cap = c.soft_cap;
  return options;
}

std::vector<Shape> ShapesOf(const Case& c) {
  const int64_t t = OptionsOf(c).cu_seqlens->back();
  std::vector<Shape> shapes = {{t, c.num_heads, c.qk_width},
                               {t, c.num_groups, c.qk_width},
                               {t, c.num_groups, c.v_width}};
  if (c.sinks) shapes.push_back({c.num_heads});
  return shapes;
}

std::vector<Variable> InputsOf(const Case& c) {
  return test::NormalInputs(ShapesOf(c));
}

const Case kSmall[] = {
    {"plain", {1, 5, 3}, 1, 1, 4, 4, true, false, 0, 0},
    {"gqa", {1, 5, 3}, 6, 2, 4, 3, true, false, 0, 0},
    {"empty documents", {0, 4, 0, 0, 3, 0}, 2, 1, 3, 5, true, false, 0, 0},
    {"window", {7, 2}, 2, 1, 4, 4, true, false, 3, 0},
    {"both ways", {1, 5, 3}, 2, 2, 3, 2, false, false, 0, 0},
    {"both ways, window", {6, 1}, 2, 2, 3, 2, false, true, 2, 0},
    {"sinks", {1, 5, 3}, 4, 2, 4, 3, true, true, 0, 0},
    {"all", {1, 5, 3}, 4, 2, 4, 3, true, true, 2, 1.5},
};

// Several tiles and ragged edges.
const Case kLarge[] = {
    {"blocks", {420}, 2, 1, 16, 20, true, true, 0, 0},
    {"blocks, window", {500}, 2, 2, 16, 16, true, false, 230, 0},
    {"blocks, both ways", {400}, 1, 1, 8, 8, false, false, 0, 0},
    {"tiles", {70, 1, 200, 64, 3}, 4, 2, 24, 40, true, false, 0, 0},
    {"tiles, all", {33, 150}, 3, 1, 33, 17, true, true, 50, 2.0},
    {"tiles, both ways", {131, 2}, 2, 2, 16, 16, false, true, 0, 0},
    {"tiles, both ways, window", {190}, 2, 1, 20, 8, false, false, 40, 0},
    {"one token", {1}, 2, 1, 128, 128, true, false, 0, 0},
    {"no tokens", {}, 2, 1, 8, 8, true, true, 0, 0},
};

class AttentionTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, AttentionTest,
                         ::testing::ValuesIn(test::Targets(2e-5, 4e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(AttentionTest, MatchesF64Reference) {
  for (const Case& c : kSmall) {
    EXPECT_TRUE(
        test::MatchesReference(Bind(OptionsOf(c)), GetParam(), ShapesOf(c)))
        << c.name;
  }
  for (const Case& c : kLarge) {
    EXPECT_TRUE(
        test::MatchesReference(Bind(OptionsOf(c)), GetParam(), ShapesOf(c)))
        << c.name;
  }
}

TEST_P(AttentionTest, SameBitsForAllThreads) {
  for (const Case& c : kLarge) {
    if (ShapesOf(c)[0][0] <= 1) continue;  // one task at most
    EXPECT_TRUE(test::SameBitsForAllThreads(Bind(OptionsOf(c)), GetParam(),
                                            ShapesOf(c)))
        << c.name;
  }
}

TEST(AttentionGradTest, MatchesCentralDifferenceInF64) {
  for (const Case& c : kSmall) {
    EXPECT_TRUE(test::GradCheck(Bind(OptionsOf(c)), InputsOf(c))) << c.name;
  }
}

TEST(AttentionGradTest, FrozenInputsGetNoGradient) {
  for (size_t frozen = 0; frozen < 4; ++frozen) {
    std::vector<Variable> inputs = InputsOf(kSmall[6]);
    inputs[frozen] = test::Frozen(inputs[frozen]);
    EXPECT_TRUE(test::GradCheck(Bind(OptionsOf(kSmall[6])), inputs)) << frozen;
  }
}

// Output, then the gradients.
std::vector<Tensor> RunOn(Device& device, DType dtype, const Case& c,
                          const AttentionOptions& options,
                          const std::vector<std::vector<double>>& values) {
  std::vector<Variable> leaves;
  const std::vector<Shape> shapes = ShapesOf(c);
  for (size_t i = 0; i < shapes.size(); ++i) {
    leaves.emplace_back(test::FromDoubles(device, shapes[i], dtype, values[i]),
                        true);
  }
  const Variable o = Bind(options)(leaves);
  std::vector<double> ones(static_cast<size_t>(o.value().num_elements()), 0.5);
  autograd::Backward(o, test::FromDoubles(device, o.shape(), dtype, ones));
  std::vector<Tensor> results = {o.value()};
  for (const Variable& leaf : leaves) results.push_back(leaf.grad());
  return results;
}

std::vector<Tensor> RunOn(const test::Target& target, const Case& c,
                          const std::vector<std::vector<double>>& values) {
  return RunOn(test::ContextFor(target.isa, 2).cpu(), target.dtype, c,
               OptionsOf(c), values);
}

std::vector<std::vector<double>> ValuesOf(const Case& c) {
  std::vector<std::vector<double>> values;
  for (const Variable& input : InputsOf(c)) {
    values.push_back(ToDoubles(input.value()));
  }
  return values;
}

TEST_P(AttentionTest, LargeScoresStayFinite) {
  const Case c = {"", {40}, 1, 1, 8, 8, true, false, 0, 0};
  AttentionOptions options = OptionsOf(c);
  options.scale = 200;
  for (const Tensor& result :
       RunOn(test::ContextFor(GetParam().isa, 2).cpu(), GetParam().dtype, c,
             options, ValuesOf(c))) {
    for (const double value : ToDoubles(result)) {
      EXPECT_TRUE(std::isfinite(value));
    }
  }
}

// Case N8: no result depends on what memory held before.
TEST_P(AttentionTest, PoisonedMemoryChangesNothing) {
  ContextOptions options;
  options.max_isa = GetParam().isa;
  options.num_threads = 2;
  options.poison_memory = true;
  const auto poisoned = std::move(Context::Create(options)).value();
  for (const Case& c : kLarge) {
    const std::vector<Tensor> clean = RunOn(GetParam(), c, ValuesOf(c));
    const std::vector<Tensor> got =
        RunOn(poisoned->cpu(), GetParam().dtype, c, OptionsOf(c), ValuesOf(c));
    for (size_t i = 0; i < clean.size(); ++i) {
      EXPECT_EQ(ToDoubles(got[i]), ToDoubles(clean[i])) << c.name << " " << i;
    }
  }
}

// Twice the tokens, twice the memory.
TEST_P(AttentionTest, MemoryGrowsAsTheTokens) {
  const auto peak = [](int32_t num_tokens) {
    ContextOptions options;
    options.max_isa = GetParam().isa;
    options.num_threads = 2;
    const auto context = std::move(Context::Create(options)).value();
    const Case c = {"", {num_tokens}, 2, 1, 32, 32, true, false, 0, 0};
    RunOn(context->cpu(), GetParam().dtype, c, OptionsOf(c), ValuesOf(c));
    return context->cpu().allocator().stats().peak_allocated;
  };
  const int64_t base = peak(1);  // scratch
  EXPECT_LT(peak(2048) - base, 2.1 * static_cast<double>(peak(1024) - base));
}

TEST(AttentionSinkTest, SinksOfABf16ModelMayBeF32) {
  const Case c = {"", {9}, 2, 1, 8, 8, true, true, 0, 0};
  const std::vector<std::vector<double>> values = ValuesOf(c);
  Device& device = test::Cpu();
  std::vector<Variable> leaves;
  for (size_t i = 0; i < 4; ++i) {
    leaves.emplace_back(test::FromDoubles(device, ShapesOf(c)[i],
                                          i == 3 ? kF32 : kBF16, values[i]),
                        true);
  }
  const Variable o = Bind(OptionsOf(c))(leaves);
  const std::vector<double> ones(static_cast<size_t>(9 * 2 * 8), 1.0);
  autograd::Backward(o, test::FromDoubles(device, o.shape(), kBF16, ones));
  EXPECT_EQ(leaves[3].grad().dtype(), kF32);
  const std::vector<Tensor> want = RunOn(device, kF64, c, OptionsOf(c), values);
  EXPECT_NE(ToDoubles(leaves[3].grad())[0], 0);
  for (size_t h = 0; h < 2; ++h) {
    EXPECT_NEAR(ToDoubles(leaves[3].grad())[h], 2 * ToDoubles(want[4])[h],
                0.05);
  }
}

// The emulated accelerator gives the bits of the cpu.
TEST(AttentionSimTest, SameBits) {
  const Case c = {"", {70, 5}, 4, 2, 24, 16, true, true, 0, 0};
  Context& context = test::ContextFor(DetectIsa(), 2);
  const std::vector<std::vector<double>> values = ValuesOf(c);
  const absl::Status status = internal::Guard([&] {
    std::vector<Variable> cpu, sim;
    for (size_t i = 0; i < 4; ++i) {
      const Tensor value =
          test::FromDoubles(context.cpu(), ShapesOf(c)[i], kBF16, values[i]);
      cpu.emplace_back(value, true);
      sim.emplace_back(value.CopyTo(context.sim()), true);
    }
    const Variable want = Bind(OptionsOf(c))(cpu);
    const Variable got = Bind(OptionsOf(c))(sim);
    autograd::Backward(want, want.value());
    autograd::Backward(got, got.value());
    EXPECT_EQ(ToDoubles(got.value()), ToDoubles(want.value()));
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(ToDoubles(sim[i].grad()), ToDoubles(cpu[i].grad())) << i;
    }
  });
  EXPECT_TRUE(status.ok()) << status;
}

// Case D6: documents do not see one another, bit for bit.
TEST_P(AttentionTest, DocumentsDoNotLeak) {
  const Case packed = {"", {37, 51, 40}, 4, 2, 16, 8, true, false, 0, 0};
  const std::vector<std::vector<double>> values = ValuesOf(packed);
  const std::vector<Tensor> before = RunOn(GetParam(), packed, values);
  std::vector<std::vector<double>> moved = values;
  for (size_t i = 0; i < 3; ++i) moved[i][5] += 1;  // token 0
  const std::vector<Tensor> after = RunOn(GetParam(), packed, moved);
  for (size_t i = 0; i < before.size(); ++i) {
    const std::vector<double> a = ToDoubles(before[i]);
    const std::vector<double> b = ToDoubles(after[i]);
    const size_t first = a.size() / 128 * 37;
    EXPECT_NE(std::vector<double>(a.begin(), a.begin() + first),
              std::vector<double>(b.begin(), b.begin() + first));
    EXPECT_EQ(std::vector<double>(a.begin() + first, a.end()),
              std::vector<double>(b.begin() + first, b.end()));
  }
  // And a document alone gives the same bits as packed.
  const Case alone = {"", {51}, 4, 2, 16, 8, true, false, 0, 0};
  std::vector<std::vector<double>> middle;
  for (const std::vector<double>& v : values) {
    const size_t row = v.size() / 128;
    middle.emplace_back(v.begin() + 37 * row, v.begin() + 88 * row);
  }
  const std::vector<Tensor> single = RunOn(GetParam(), alone, middle);
  for (size_t i = 0; i < before.size(); ++i) {
    const std::vector<double> a = ToDoubles(before[i]);
    const size_t row = a.size() / 128;
    EXPECT_EQ(std::vector<double>(a.begin() + 37 * row, a.begin() + 88 * row),
              ToDoubles(single[i]));
  }
}

std::string Refusal(const std::vector<Variable>& in,
                    const AttentionOptions& options,
                    const Variable& sinks = Variable()) {
  return std::string(internal::Guard([&] {
                       Attention(in[0], in[1], in[2], options, sinks);
                     }).message());
}

TEST(AttentionWindowTest, TheLargestIsNoLimit) {
  const Case c = {"", {5, 3}, 2, 1, 4, 3, false, false, 0, 0};
  const std::vector<Variable> inputs = InputsOf(c);
  AttentionOptions options = OptionsOf(c);
  const std::vector<double> all = ToDoubles(Bind(options)(inputs).value());
  options.window = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ToDoubles(Bind(options)(inputs).value()), all);
}

TEST(AttentionCheckTest, NamesWhatDoesNotFit) {
  const Variable q = test::Normal({5, 4, 8}, 1);
  const Variable k = test::Normal({5, 2, 8}, 2);
  AttentionOptions options;
  EXPECT_THAT(Refusal({q, k, k}, options),
              ::testing::HasSubstr("needs cu_seqlens"));
  options.cu_seqlens = Documents({5});
  EXPECT_THAT(
      Refusal({q, test::Normal({5, 2, 7}, 2), k}, options),
      ::testing::HasSubstr("k is f64 [5, 2, 7] on cpu for q f64 [5, 4, 8]"));
  EXPECT_THAT(
      Refusal({q, k, test::Normal({5, 1, 8}, 2)}, options),
      ::testing::HasSubstr("v is f64 [5, 1, 8] on cpu for k f64 [5, 2, 8]"));
  EXPECT_THAT(Refusal({test::Normal({5, 0, 8}, 1), k, k}, options),
              ::testing::HasSubstr("q is f64 [5, 0, 8] on cpu: no heads"));
  const Variable no_width = test::Normal({5, 4, 0}, 1);
  EXPECT_THAT(Refusal({no_width, no_width, k}, options),
              ::testing::HasSubstr("q is f64 [5, 4, 0] on cpu: no heads"));
  const Variable no_heads = test::Normal({5, 0, 8}, 2);
  EXPECT_THAT(Refusal({q, no_heads, no_heads}, options),
              ::testing::HasSubstr("4 query heads for 0 key/value heads"));
  const Variable three = test::Normal({5, 3, 8}, 2);
  EXPECT_THAT(Refusal({q, three, three}, options),
              ::testing::HasSubstr("4 query heads for 3 key/value heads"));
  EXPECT_THAT(
      Refusal({q, k, k}, options, test::Normal({3}, 4)),
      ::testing::HasSubstr("sinks are f64 [3] on cpu for q f64 [5, 4, 8]"));
}

TEST(AttentionCheckTest, RefusesBadBoundaries) {
  const Variable q = test::Normal({5, 4, 8}, 1);
  const auto with = [&](std::vector<int32_t> at) {
    AttentionOptions options;
    options.cu_seqlens = std::make_shared<std::vector<int32_t>>(std::move(at));
    return Refusal({q, q, q}, options);
  };
  EXPECT_EQ(with({0, 0, 5, 5}), "");
  EXPECT_THAT(with({0, 12, 8, 16}), ::testing::HasSubstr("falls from 12 to 8"));
  EXPECT_THAT(with({0, 4}), ::testing::HasSubstr("ends at 4 for 5 tokens"));
  EXPECT_THAT(with({1, 5}), ::testing::HasSubstr("starts at 1"));
  EXPECT_THAT(with({}), ::testing::HasSubstr("needs cu_seqlens"));
}

}  // namespace
}  // namespace espalier
