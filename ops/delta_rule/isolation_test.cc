#include <algorithm>
#include <cmath>
#include <vector>

#include "espalier/autograd/backward.h"
#include "espalier/autograd/mode.h"
#include "espalier/ops/delta_rule/delta_rule.h"
#include "espalier/ops/delta_rule/internal/test_cases.h"
#include "espalier/ops/elementwise/elementwise.h"
#include "espalier/ops/reduce/reduce.h"
#include "espalier/tests/support/op_check.h"

// What a token's results must not depend on: later tokens, other documents, and
// where a document is cut.
namespace espalier {
namespace {

// NOLINTNEXTLINE(google-build-using-namespace): this folder's own helpers
using namespace delta_rule_test;

class DeltaRuleIsolationTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, DeltaRuleIsolationTest,
                         ::testing::ValuesIn(test::Targets()),
                         ::testing::PrintToStringParamName());

// What comes later changes no bit of what came before: not through anchors of
// the decay, not through tiles or chunks that are only partly there.
TEST_P(DeltaRuleIsolationTest, LaterTokensChangeNoBit) {
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
TEST_P(DeltaRuleIsolationTest, DocumentsDoNotLeak) {
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

}  // namespace
}  // namespace espalier
