#include "espalier/ops/delta_rule/delta_rule.h"

#include <cmath>
#include <random>
#include <string>
#include <utility>

#include "espalier/autograd/backward.h"
#include "espalier/autograd/mode.h"
#include "espalier/ops/cast/cast.h"
#include "espalier/ops/elementwise/elementwise.h"
#include "espalier/ops/reduce/reduce.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

CuSeqlens At(std::vector<int32_t> at) {
  return std::make_shared<const std::vector<int32_t>>(std::move(at));
}

struct Case {
  std::string name;
  std::vector<int32_t> at;
  int64_t groups, heads, width, v_width;
  bool head_gate, initial;
  double decay;  // g is -decay times the size of a normal number
};

// Small enough for central differences.
const Case kSmall[] = {
    {"one head", {0, 5}, 1, 1, 2, 2, false, false, 1},
    {"packed", {0, 1, 4, 4, 7}, 2, 2, 3, 2, false, true, 0.5},
    {"shared keys", {0, 2, 6}, 1, 3, 2, 3, false, true, 1},
    {"gate of a head", {0, 4, 6}, 1, 2, 3, 2, true, true, 1},
    {"empty", {0, 0, 3, 3}, 1, 1, 2, 4, false, true, 1},
};

// Several chunks, tiles and ragged edges.
const Case kLarge[] = {
    {"one document", {0, 200}, 2, 2, 16, 32, false, false, 0.1},
    {"packed", {0, 1, 65, 128, 131, 300}, 1, 2, 24, 17, false, true, 0.3},
    {"segments", {0, 700}, 1, 1, 20, 20, false, true, 0.01},
    {"shared keys", {0, 90, 100}, 2, 6, 33, 8, false, true, 0.2},
    {"gate of a head", {0, 70, 350}, 2, 4, 16, 16, true, true, 0.2},
    {"strong decay", {0, 130}, 1, 2, 16, 16, false, true, 40},
    {"wide", {0, 100}, 1, 2, 128, 128, false, true, 0.1},
    {"empty documents", {0, 0, 33, 33, 64}, 1, 2, 16, 16, false, true, 1},
    {"no tokens", {0, 0}, 1, 2, 16, 16, false, true, 1},
};

// q, k, v, g, beta and, when the case says so, the initial state: queries and
// keys of length one, gates below 0, beta from 0 to 1.
std::vector<Variable> InputsOf(const Case& c) {
  const int64_t t = c.at.back();
  const int64_t documents = static_cast<int64_t>(c.at.size()) - 1;
  std::mt19937_64 engine(7);
  std::normal_distribution<double> normal;
  const auto make = [&](const Shape& shape, auto fn) {
    std::vector<double> values(static_cast<size_t>(shape.num_elements()));
    for (double& value : values) value = normal(engine);
    fn(values);
    return Variable(test::FromDoubles(test::Cpu(), shape, kF64, values), true);
  };
  const auto unit = [&](std::vector<double>& values) {
    const size_t width = static_cast<size_t>(c.width);
    for (size_t i = 0; i < values.size(); i += width) {
      double sum = 1e-6;
      for (size_t d = 0; d < width; ++d) sum += values[i + d] * values[i + d];
      for (size_t d = 0; d < width; ++d) values[i + d] /= std::sqrt(sum);
    }
  };
  std::vector<Variable> inputs = {
      make({t, c.groups, c.width}, unit),
      make({t, c.groups, c.width}, unit),
      make({t, c.heads, c.v_width}, [](auto&) {}),
      make(c.head_gate ? Shape{t, c.heads} : Shape{t, c.heads, c.width},
           [&](std::vector<double>& values) {
             for (double& g : values) g = -c.decay * std::abs(g);
           }),
      make({t, c.heads},
           [](std::vector<double>& values) {
             for (double& beta : values) beta = 1 / (1 + std::exp(-beta));
           }),
  };
  if (c.initial) {
    inputs.push_back(
        make({documents, c.heads, c.width, c.v_width}, [](auto&) {}));
  }
  return inputs;
}

DeltaRuleOptions OptionsOf(const Case& c) {
  DeltaRuleOptions options;
  options.cu_seqlens = At(c.at);
  options.final_state = true;
  return options;
}

// Gates and states are never narrower than f32.
Variable Wide(const Variable& x) {
  return Cast(x, x.dtype() == kF64 ? kF64 : kF32);
}

DeltaRuleResult Call(const std::vector<Variable>& in,
                     const DeltaRuleOptions& options) {
  return DeltaRule(in[0], in[1], in[2], Wide(in[3]), Wide(in[4]),
                   in.size() > 5 ? Wide(in[5]) : Variable(), options);
}

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

// o, final state and the gradients of the inputs, of `dout` into o.
std::vector<std::vector<double>> RunOn(Device& device, DType dtype,
                                       const std::vector<Variable>& inputs,
                                       const DeltaRuleOptions& options,
                                       const std::vector<double>& dout) {
  const DType wide = dtype == kF64 ? kF64 : kF32;
  std::vector<Variable> in;
  for (size_t i = 0; i < inputs.size(); ++i) {
    in.emplace_back(
        test::FromDoubles(device, inputs[i].shape(), i < 3 ? dtype : wide,
                          ToDoubles(inputs[i].value())),
        true);
  }
  const DeltaRuleResult result = Call(in, options);
  autograd::Backward(result.o,
                     test::FromDoubles(device, result.o.shape(), dtype, dout));
  std::vector<std::vector<double>> values = {
      ToDoubles(result.o.value()), ToDoubles(result.final_state.value())};
  for (const Variable& leaf : in) values.push_back(ToDoubles(leaf.grad()));
  return values;
}

std::vector<std::vector<double>> RunOn(const test::Target& target,
                                       const std::vector<Variable>& inputs,
                                       const DeltaRuleOptions& options,
                                       const std::vector<double>& dout) {
  return RunOn(test::ContextFor(target.isa, 2).cpu(), target.dtype, inputs,
               options, dout);
}

Variable Of(const Shape& shape, const std::vector<double>& values) {
  return Variable(test::FromDoubles(test::Cpu(), shape, kF64, values));
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

// Rows [begin, end) of the leading dim.
std::vector<double> Rows(const std::vector<double>& values, int64_t num_rows,
                         int64_t begin, int64_t end) {
  const int64_t size = static_cast<int64_t>(values.size()) / num_rows;
  return {values.begin() + begin * size, values.begin() + end * size};
}

// What comes later changes no bit of what came before: not through anchors of
// the decay, not through tiles or chunks that are only partly there.
TEST_P(DeltaRuleTest, LaterTokensChangeNoBit) {
  for (const double decay : {0.2, 30.0}) {
    const int32_t length = 75;
    const Case c = {"", {0, length}, 1, 2, 16, 16, false, true, decay};
    const std::vector<Variable> inputs = InputsOf(c);
    for (const int64_t cut : {3, 17, 31, 63, 70}) {
      // Only the tokens before the cut have a loss.
      std::vector<double> dout(static_cast<size_t>(length * 2 * 16), 0.0);
      std::fill(dout.begin(), dout.begin() + cut * 2 * 16, 0.5);
      const auto before = RunOn(GetParam(), inputs, OptionsOf(c), dout);
      std::vector<Variable> changed = inputs;
      for (size_t i = 0; i < 5; ++i) {
        std::vector<double> values = ToDoubles(inputs[i].value());
        const size_t size = values.size() / length;
        for (size_t e = static_cast<size_t>(cut) * size; e < values.size();
             ++e) {
          values[e] *= 0.5;
        }
        changed[i] = Of(inputs[i].shape(), values);
      }
      const auto after = RunOn(GetParam(), changed, OptionsOf(c), dout);
      for (size_t i = 0; i < before.size(); ++i) {
        if (i == 1) continue;  // the final state has seen the change
        const bool state = i == 7;
        const int64_t rows = state ? 1 : length;
        const int64_t end = state ? 1 : cut;
        EXPECT_EQ(Rows(before[i], rows, 0, end), Rows(after[i], rows, 0, end))
            << i << " cut at " << cut;
      }
      EXPECT_NE(before[1], after[1]);
    }
  }
}

// Documents do not see one another, bit for bit, and one alone gives what it
// gives packed.
TEST_P(DeltaRuleTest, DocumentsDoNotLeak) {
  const Case packed = {"", {0, 37, 128, 140}, 1, 2, 16, 8, false, true, 0.2};
  const std::vector<Variable> inputs = InputsOf(packed);
  const std::vector<double> dout(static_cast<size_t>(140 * 2 * 8), 0.5);
  const auto whole = RunOn(GetParam(), inputs, OptionsOf(packed), dout);
  std::vector<Variable> middle;
  for (size_t i = 0; i < 6; ++i) {
    const bool state = i == 5;
    const Shape& shape = inputs[i].shape();
    std::vector<int64_t> dims(1, state ? 1 : 91);
    for (int d = 1; d < shape.ndim(); ++d) dims.push_back(shape[d]);
    middle.push_back(
        Of(Shape(dims), Rows(ToDoubles(inputs[i].value()), state ? 3 : 140,
                             state ? 1 : 37, state ? 2 : 128)));
  }
  DeltaRuleOptions alone;
  alone.cu_seqlens = At({0, 91});
  alone.final_state = true;
  const auto single =
      RunOn(GetParam(), middle, alone, Rows(dout, 140, 37, 128));
  for (size_t i = 0; i < whole.size(); ++i) {
    const bool state = i == 1 || i == 7;
    EXPECT_EQ(single[i],
              Rows(whole[i], state ? 3 : 140, state ? 1 : 37, state ? 2 : 128))
        << i;
  }
}

// Case N11: cut anywhere, with the state carried over, values and gradients are
// those of the whole.
void ExpectCutsGiveTheWhole(DType dtype, int32_t length,
                            const std::vector<int32_t>& cuts,
                            double tolerance) {
  const Case c = {"", {0, length}, 1, 2, 3, 5, false, true, 0.3};
  const std::vector<Variable> inputs = InputsOf(c);
  const auto piece = [&](size_t i, int64_t begin, int64_t end) {
    const Shape& shape = inputs[i].shape();
    std::vector<int64_t> dims(1, end - begin);
    for (int d = 1; d < shape.ndim(); ++d) dims.push_back(shape[d]);
    return Variable(test::FromDoubles(
                        test::Cpu(), Shape(dims), dtype,
                        Rows(ToDoubles(inputs[i].value()), length, begin, end)),
                    true);
  };
  const auto run = [&](const std::vector<int32_t>& at) {
    std::vector<std::vector<Variable>> pieces;
    const Variable initial(
        test::FromDoubles(test::Cpu(), inputs[5].shape(), dtype,
                          ToDoubles(inputs[5].value())),
        true);
    Variable state = initial;
    Variable loss;
    for (size_t p = 0; p + 1 < at.size(); ++p) {
      std::vector<Variable> in;
      for (size_t i = 0; i < 5; ++i) in.push_back(piece(i, at[p], at[p + 1]));
      DeltaRuleOptions options;
      options.cu_seqlens = At({0, at[p + 1] - at[p]});
      options.final_state = true;
      const DeltaRuleResult result =
          DeltaRule(in[0], in[1], in[2], in[3], in[4], state, options);
      const Variable part = Sum(Mul(result.o, result.o));
      loss = loss ? Add(loss, part) : part;
      state = result.final_state;
      pieces.push_back(in);
    }
    loss = Add(loss, Sum(Mul(state, state)));
    autograd::Backward(loss,
                       test::FromDoubles(test::Cpu(), {}, loss.dtype(), {1}));
    std::vector<std::vector<double>> values = {ToDoubles(state.value()),
                                               ToDoubles(initial.grad())};
    for (size_t i = 0; i < 5; ++i) {
      std::vector<double> all;
      for (const auto& in : pieces) {
        const std::vector<double> part = ToDoubles(in[i].grad());
        all.insert(all.end(), part.begin(), part.end());
      }
      values.push_back(all);
    }
    return values;
  };
  const auto whole = run({0, length});
  for (const int32_t cut : cuts) {
    const auto parts = run({0, cut, length});
    for (size_t i = 0; i < whole.size(); ++i) {
      ASSERT_EQ(whole[i].size(), parts[i].size());
      for (size_t e = 0; e < whole[i].size(); ++e) {
        ASSERT_NEAR(parts[i][e], whole[i][e],
                    tolerance * (1 + std::abs(whole[i][e])))
            << length << " cut at " << cut << ": " << i << " " << e;
      }
    }
  }
}

TEST(DeltaRuleCutTest, PiecesGiveWhatTheWholeGives) {
  for (const int32_t length : {1, 2, 3, 5, 63, 64, 65}) {
    std::vector<int32_t> cuts;
    for (int32_t cut = 0; cut <= length; ++cut) cuts.push_back(cut);
    ExpectCutsGiveTheWhole(kF64, length, cuts, 1e-11);
    ExpectCutsGiveTheWhole(kF32, length, cuts, 2e-5);
  }
}

// Decoding: one token at a time after a prefill in chunks, the state carried.
TEST(DeltaRuleCutTest, DecodingGivesWhatTheChunksGive) {
  const int32_t length = 40;
  const int32_t prefill = 23;
  const Case c = {"", {0, length}, 2, 4, 20, 16, false, true, 0.3};
  const std::vector<Variable> inputs = InputsOf(c);
  const NoGrad no_grad;
  const auto call = [&](int64_t begin, int64_t end, const Variable& state,
                        DeltaRuleForm form) {
    std::vector<Variable> in;
    for (size_t i = 0; i < 5; ++i) {
      const Shape& shape = inputs[i].shape();
      std::vector<int64_t> dims(1, end - begin);
      for (int d = 1; d < shape.ndim(); ++d) dims.push_back(shape[d]);
      in.emplace_back(test::FromDoubles(
          test::Cpu(), Shape(dims), kF32,
          Rows(ToDoubles(inputs[i].value()), length, begin, end)));
    }
    DeltaRuleOptions options;
    options.cu_seqlens = At({0, static_cast<int32_t>(end - begin)});
    options.form = form;
    options.final_state = true;
    return DeltaRule(in[0], in[1], in[2], in[3], in[4], state, options);
  };
  const Variable initial(test::FromDoubles(test::Cpu(), inputs[5].shape(), kF32,
                                           ToDoubles(inputs[5].value())));
  const DeltaRuleResult whole = call(0, length, initial, DeltaRuleForm::kChunk);
  const std::vector<double> want = ToDoubles(whole.o.value());
  Variable state = call(0, prefill, initial, DeltaRuleForm::kChunk).final_state;
  for (int64_t t = prefill; t < length; ++t) {
    const DeltaRuleResult step = call(t, t + 1, state, DeltaRuleForm::kToken);
    state = step.final_state;
    const std::vector<double> row = Rows(want, length, t, t + 1);
    const std::vector<double> got = ToDoubles(step.o.value());
    for (size_t e = 0; e < row.size(); ++e) EXPECT_NEAR(got[e], row[e], 1e-5);
  }
  const std::vector<double> last = ToDoubles(whole.final_state.value());
  const std::vector<double> got = ToDoubles(state.value());
  for (size_t e = 0; e < last.size(); ++e) EXPECT_NEAR(got[e], last[e], 1e-5);
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
