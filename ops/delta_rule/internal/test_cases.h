#ifndef ESPALIER_OPS_DELTA_RULE_INTERNAL_TEST_CASES_H_
#define ESPALIER_OPS_DELTA_RULE_INTERNAL_TEST_CASES_H_

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "espalier/autograd/backward.h"
#include "espalier/ops/cast/cast.h"
#include "espalier/ops/delta_rule/delta_rule.h"
#include "espalier/tests/support/op_check.h"

// Inputs and calls that the tests of this op share.
namespace espalier::delta_rule_test {

inline CuSeqlens At(std::vector<int32_t> at) {
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
inline const Case kSmall[] = {
    {"one head", {0, 5}, 1, 1, 2, 2, false, false, 1},
    {"packed", {0, 1, 4, 4, 7}, 2, 2, 3, 2, false, true, 0.5},
    {"shared keys", {0, 2, 6}, 1, 3, 2, 3, false, true, 1},
    {"gate of a head", {0, 4, 6}, 1, 2, 3, 2, true, true, 1},
    {"empty", {0, 0, 3, 3}, 1, 1, 2, 4, false, true, 1},
};

// Several chunks, tiles and ragged edges.
inline const Case kLarge[] = {
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
inline std::vector<Variable> InputsOf(const Case& c) {
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

inline DeltaRuleOptions OptionsOf(const Case& c) {
  DeltaRuleOptions options;
  options.cu_seqlens = At(c.at);
  options.final_state = true;
  return options;
}

// Gates and states are never narrower than f32.
inline Variable Wide(const Variable& x) {
  return Cast(x, x.dtype() == kF64 ? kF64 : kF32);
}

inline DeltaRuleResult Call(const std::vector<Variable>& in,
                            const DeltaRuleOptions& options) {
  return DeltaRule(in[0], in[1], in[2], Wide(in[3]), Wide(in[4]),
                   in.size() > 5 ? Wide(in[5]) : Variable(), options);
}

// o, final state and the gradients of the inputs, of `dout` into o.
inline std::vector<std::vector<double>> RunOn(
    Device& device, DType dtype, const std::vector<Variable>& inputs,
    const DeltaRuleOptions& options, const std::vector<double>& dout) {
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

inline std::vector<std::vector<double>> RunOn(
    const test::Target& target, const std::vector<Variable>& inputs,
    const DeltaRuleOptions& options, const std::vector<double>& dout) {
  return RunOn(test::ContextFor(target.isa, 2).cpu(), target.dtype, inputs,
               options, dout);
}

inline Variable Of(const Shape& shape, const std::vector<double>& values) {
  return Variable(test::FromDoubles(test::Cpu(), shape, kF64, values));
}

// Rows [begin, end) of the leading dim.
inline std::vector<double> Rows(const std::vector<double>& values,
                                int64_t num_rows, int64_t begin, int64_t end) {
  const int64_t size = static_cast<int64_t>(values.size()) / num_rows;
  return {values.begin() + begin * size, values.begin() + end * size};
}

}  // namespace espalier::delta_rule_test

#endif  // ESPALIER_OPS_DELTA_RULE_INTERNAL_TEST_CASES_H_
