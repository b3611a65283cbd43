#include "espalier/tests/support/op_check.h"

#include <cmath>
#include <memory>
#include <random>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"

#include "espalier/autograd/backward.h"
#include "espalier/autograd/mode.h"
#include "espalier/autograd/node.h"
#include "espalier/autograd/recompute.h"
#include "espalier/autograd/saved.h"
#include "espalier/runtime/check.h"
#include "espalier/runtime/guard.h"

namespace espalier::test {

namespace {

std::vector<double> NormalValues(int64_t count, uint64_t seed) {
  std::mt19937_64 engine(seed * 0x9e3779b97f4a7c15u + 1);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = normal(engine);
  return values;
}

constexpr uint64_t kCotangentSeed = 977;

struct Outcome {
  Tensor value;
  std::vector<Tensor> gradients;  // absent for inputs that need none
};

using Mark = absl::FunctionRef<void(absl::string_view stage)>;

// sum(got * cotangent) is what gradients are taken of. The cotangent is rounded
// to `rounding`, so that runs in several dtypes differentiate one function.
Tensor CotangentFor(const Tensor& value, DType rounding) {
  const std::vector<double> values =
      NormalValues(value.num_elements(), kCotangentSeed);
  const Tensor rounded = FromDoubles(value.device().context().cpu(),
                                     value.shape(), rounding, values);
  return FromDoubles(value.device(), value.shape(), value.dtype(),
                     ToDoubles(rounded));
}

// Runs fn on copies of the inputs on device, in dtype for floating inputs.
// `mark` is called when a stage, "forward" or "backward", has ended.
Outcome RunOn(
    const Fn& fn, Device& device, DType dtype, DType rounding,
    const std::vector<Variable>& inputs, Mark mark = [](absl::string_view) {}) {
  std::vector<Variable> leaves;
  for (const Variable& input : inputs) {
    if (!input) {
      leaves.emplace_back();
      continue;
    }
    if (!IsFloat(input.dtype())) {
      leaves.emplace_back(input.value().ToHost().CopyTo(device));
      continue;
    }
    leaves.emplace_back(
        FromDoubles(device, input.shape(), dtype, ToDoubles(input.value())),
        input.needs_grad());
  }
  Outcome outcome;
  const Variable result = fn(leaves);
  outcome.value = result.value();
  mark("forward");
  if (result.needs_grad()) {
    autograd::Backward(result, CotangentFor(result.value(), rounding));
    mark("backward");
  }
  for (const Variable& leaf : leaves) {
    if (!leaf) {
      outcome.gradients.emplace_back();
      continue;
    }
    ESPALIER_CHECK(
        static_cast<bool>(leaf.grad()) ==
            (result.needs_grad() && leaf.needs_grad()),
        "input ", outcome.gradients.size(),
        leaf.grad() ? " needs no gradient and got one" : " got no gradient");
    outcome.gradients.push_back(leaf.grad());
  }
  return outcome;
}

// The check's verdict, or the failure of what it ran.
::testing::AssertionResult Guarded(
    absl::FunctionRef<::testing::AssertionResult()> check) {
  ::testing::AssertionResult result = ::testing::AssertionSuccess();
  const absl::Status status = internal::Guard([&] { result = check(); });
  if (status.ok()) return result;
  return ::testing::AssertionFailure() << status.ToString();
}

::testing::AssertionResult Near(const Tensor& got, const Tensor& want,
                                double tolerance, const std::string& what) {
  if (!got || !want) {
    return ::testing::AssertionFailure() << what << " is " << ToString(got)
                                         << ", expected " << ToString(want);
  }
  if (got.shape() != want.shape()) {
    return ::testing::AssertionFailure()
           << what << " is " << ToString(got.shape()) << ", expected "
           << ToString(want.shape());
  }
  const std::vector<double> g = ToDoubles(got);
  const std::vector<double> w = ToDoubles(want);
  for (size_t i = 0; i < g.size(); ++i) {
    // Written so that NaN is never near; equal infinities are.
    if (std::abs(g[i] - w[i]) <= tolerance * (1 + std::abs(w[i]))) continue;
    if (g[i] == w[i]) continue;
    return ::testing::AssertionFailure()
           << what << " element " << i << " of " << ToString(got.shape())
           << " is " << g[i] << ", expected " << w[i];
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult SameBits(const Tensor& a, const Tensor& b,
                                    const std::string& what) {
  if (static_cast<bool>(a) != static_cast<bool>(b)) {
    return ::testing::AssertionFailure() << what << " is present once only";
  }
  if (!a) return ::testing::AssertionSuccess();
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) {
    return ::testing::AssertionFailure()
           << what << " is " << ToString(a) << ", expected " << ToString(b);
  }
  const Tensor x = a.ToHost();
  const Tensor y = b.ToHost();
  const std::string_view xs(static_cast<const char*>(x.view().pointer),
                            static_cast<size_t>(x.num_bytes()));
  const std::string_view ys(static_cast<const char*>(y.view().pointer),
                            static_cast<size_t>(y.num_bytes()));
  if (xs == ys) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << what << " differs in bits";
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// sum(fn(inputs) * cotangent) with one element of one input moved.
double Shifted(const Fn& fn, std::vector<Variable> inputs, size_t input,
               size_t element, double step,
               const std::vector<double>& cotangent) {
  const NoGrad no_grad;
  std::vector<double> values = ToDoubles(inputs[input].value());
  values[element] += step;
  const Variable& original = inputs[input];
  inputs[input] = Variable(
      FromDoubles(original.value().device(), original.shape(), kF64, values));
  return Dot(ToDoubles(fn(inputs).value()), cotangent);
}

}  // namespace

Tensor FromDoubles(Device& device, const Shape& shape, DType dtype,
                   const std::vector<double>& values) {
  Tensor host = Tensor::Empty(device.context().cpu(), shape, dtype);
  const View view = host.view();
  for (size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case kF64:
        view.data<double>()[i] = values[i];
        break;
      case kF32:
        view.data<float>()[i] = static_cast<float>(values[i]);
        break;
      case kBF16:
        view.data<BFloat16>()[i] = BFloat16(values[i]);
        break;
      default:
        view.data<Float16>()[i] = Float16(values[i]);
        break;
    }
  }
  return device.type() == kCpu ? host : host.CopyTo(device);
}

Variable Normal(const Shape& shape, uint64_t seed) {
  return Variable(
      FromDoubles(Cpu(), shape, kF64, NormalValues(shape.num_elements(), seed)),
      /*needs_grad=*/true);
}

std::vector<Variable> NormalInputs(const std::vector<Shape>& shapes) {
  std::vector<Variable> inputs;
  inputs.reserve(shapes.size());
  for (size_t i = 0; i < shapes.size(); ++i) {
    inputs.push_back(Normal(shapes[i], i + 1));
  }
  return inputs;
}

Variable Frozen(const Variable& variable) { return variable.Detach(); }

namespace {

// The gradient of one input, element by element, against central differences.
::testing::AssertionResult CheckInput(const Fn& fn,
                                      const std::vector<Variable>& inputs,
                                      size_t input,
                                      const std::vector<double>& cotangent,
                                      double rtol, double atol) {
  constexpr double kStep = 1e-6;
  const Variable& leaf = inputs[input];
  if (!leaf.needs_grad()) {
    if (!leaf.grad()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << "input " << input << " needs no gradient and got one";
  }
  if (!leaf.grad()) {
    return ::testing::AssertionFailure()
           << "input " << input << " got no gradient";
  }
  const std::vector<double> got = ToDoubles(leaf.grad());
  for (size_t e = 0; e < got.size(); ++e) {
    const double want = (Shifted(fn, inputs, input, e, kStep, cotangent) -
                         Shifted(fn, inputs, input, e, -kStep, cotangent)) /
                        (2 * kStep);
    // Written so that NaN fails.
    if (std::abs(got[e] - want) <= atol + rtol * std::abs(want)) continue;
    return ::testing::AssertionFailure()
           << "gradient of input " << input << " element " << e << " is "
           << got[e] << ", central difference " << want;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace

::testing::AssertionResult GradCheck(const Fn& fn, std::vector<Variable> inputs,
                                     double rtol, double atol) {
  return Guarded([&] {
    for (Variable& input : inputs) {
      if (input) input = Variable(input.value(), input.needs_grad());
    }
    const Variable result = fn(inputs);
    const Tensor cotangent = CotangentFor(result.value(), kF64);
    autograd::Backward(result, cotangent);
    const std::vector<double> weights = ToDoubles(cotangent);
    auto verdict = ::testing::AssertionSuccess();
    for (size_t i = 0; verdict && i < inputs.size(); ++i) {
      if (!inputs[i]) continue;
      verdict = CheckInput(fn, inputs, i, weights, rtol, atol);
    }
    return verdict;
  });
}

namespace {

::testing::AssertionResult NearReference(const Fn& fn, const Target& target,
                                         const std::vector<Variable>& inputs) {
  Device& device = ContextFor(target.isa, 2).cpu();
  std::vector<Variable> rounded;
  for (const Variable& input : inputs) {
    if (!input || !IsFloat(input.dtype())) {
      rounded.push_back(input);
      continue;
    }
    const Tensor low = FromDoubles(device, input.shape(), target.dtype,
                                   ToDoubles(input.value()));
    rounded.emplace_back(
        FromDoubles(Cpu(), input.shape(), kF64, ToDoubles(low)),
        input.needs_grad());
  }
  const Outcome want = RunOn(fn, Cpu(), kF64, target.dtype, rounded);
  const Outcome got = RunOn(fn, device, target.dtype, target.dtype, rounded);
  auto result = Near(got.value, want.value, target.tolerance, "value");
  for (size_t i = 0; result && i < inputs.size(); ++i) {
    if (!got.gradients[i] && !want.gradients[i]) continue;
    result = Near(got.gradients[i], want.gradients[i], target.tolerance,
                  absl::StrCat("gradient of input ", i));
  }
  return result;
}

}  // namespace

::testing::AssertionResult MatchesReference(
    const Fn& fn, const Target& target, const std::vector<Variable>& inputs) {
  return Guarded([&] { return NearReference(fn, target, inputs); });
}

::testing::AssertionResult MatchesReference(const Fn& fn, const Target& target,
                                            const std::vector<Shape>& shapes) {
  return MatchesReference(fn, target, NormalInputs(shapes));
}

::testing::AssertionResult SameBitsForAllThreads(
    const Fn& fn, const Target& target, const std::vector<Shape>& shapes) {
  return SameBitsForAllThreads(fn, target, NormalInputs(shapes));
}

::testing::AssertionResult SameBitsForAllThreads(
    const Fn& fn, const Target& target, const std::vector<Variable>& inputs) {
  return Guarded([&] {
    const auto run = [&](int threads) {
      return RunOn(fn, ContextFor(target.isa, threads).cpu(), target.dtype,
                   target.dtype, inputs);
    };
    const Outcome want = run(1);
    auto result = ::testing::AssertionSuccess();
    const auto compare = [&](const Outcome& got, const std::string& where) {
      if (result) result = SameBits(got.value, want.value, "value" + where);
      for (size_t i = 0; result && i < inputs.size(); ++i) {
        result = SameBits(got.gradients[i], want.gradients[i],
                          absl::StrCat("gradient of input ", i, where));
      }
    };
    for (const int threads : {2, 3, 7}) {
      compare(run(threads), absl::StrCat(" at ", threads, " threads"));
    }
    CountedContext& counted = CountedContextFor(target.isa);
    int64_t before = counted.executor.num_regions();
    std::string serial_stages;
    const Outcome in_turn =
        RunOn(fn, counted.context->cpu(), target.dtype, target.dtype, inputs,
              [&](absl::string_view stage) {
                if (counted.executor.num_regions() == before) {
                  absl::StrAppend(&serial_stages, " ", stage);
                }
                before = counted.executor.num_regions();
              });
    compare(in_turn, " of tasks one after another");
    if (result && !serial_stages.empty()) {
      result = ::testing::AssertionFailure()
               << "no parallel region of several tasks in:" << serial_stages
               << "; the inputs are too small to compare thread counts";
    }
    return result;
  });
}

namespace {

// Saves its input y; its gradient is dy * y.
struct SaveNode final : autograd::Node {
  explicit SaveNode(Tensor y) : y(std::move(y)) {}
  absl::string_view name() const override { return "save"; }
  void ForEachSaved(SavedVisitor visit) override { visit("y", y); }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dy) override {
    std::vector<double> product = ToDoubles(y);
    const std::vector<double> d = ToDoubles(dy[0]);
    for (size_t i = 0; i < d.size(); ++i) product[i] *= d[i];
    return {FromDoubles(y.device(), y.shape(), y.dtype(), product)};
  }
  Tensor y;
};

Outcome RunSaved(const Fn& fn, const Target& target,
                 autograd::RecomputePolicy policy, bool given_up,
                 const std::vector<Variable>& inputs) {
  const Fn saved = [&](const std::vector<Variable>& in) {
    Variable y = autograd::RecomputeOne(
        policy, "op", in, [&](absl::Span<const Variable> region) {
          const Variable made = fn({region.begin(), region.end()});
          return autograd::Record(
              made.value(), std::make_unique<SaveNode>(made.value()), {&made});
        });
    ESPALIER_CHECK(
        (autograd::CountSaved({&y, 1}).total.recomputed > 0) == given_up,
        given_up ? "the result is saved" : "the result is given up");
    return y;
  };
  return RunOn(saved, ContextFor(target.isa, 2).cpu(), target.dtype,
               target.dtype, inputs);
}

}  // namespace

::testing::AssertionResult SameBitsWhenRecomputed(
    const Fn& fn, const Target& target, const std::vector<Shape>& shapes) {
  return Guarded([&] {
    const std::vector<Variable> inputs = NormalInputs(shapes);
    const Outcome want =
        RunSaved(fn, target, autograd::RecomputePolicy::kNone, false, inputs);
    const Outcome got = RunSaved(
        fn, target, autograd::RecomputePolicy::kSelective, true, inputs);
    auto result = SameBits(got.value, want.value, "value");
    for (size_t i = 0; result && i < inputs.size(); ++i) {
      result = SameBits(got.gradients[i], want.gradients[i],
                        absl::StrCat("gradient of input ", i));
    }
    return result;
  });
}

}  // namespace espalier::test
