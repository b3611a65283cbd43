// A decoder of two layers with adapters, under every recompute policy.

#include "espalier/autograd/recompute.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/autograd/backward.h"
#include "espalier/autograd/offload.h"
#include "espalier/autograd/rng_stream.h"
#include "espalier/autograd/saved.h"
#include "espalier/ops/attention/attention.h"
#include "espalier/ops/dropout/dropout.h"
#include "espalier/ops/elementwise/elementwise.h"
#include "espalier/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "espalier/ops/matmul/matmul.h"
#include "espalier/ops/reshape/reshape.h"
#include "espalier/ops/rms_norm/rms_norm.h"
#include "espalier/ops/rope/rope.h"
#include "espalier/ops/swiglu/swiglu.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/rng.h"

namespace espalier {
namespace {

using autograd::RecomputePolicy;
using Inputs = absl::Span<const Variable>;

constexpr int64_t kT = 300, kH = 96, kN = 6, kG = 2, kD = 16, kI = 224, kV = 71;
constexpr int64_t kLoraRank = 8;
constexpr int kLayers = 2;

constexpr auto kNone = RecomputePolicy::kNone;
constexpr auto kSelective = RecomputePolicy::kSelective;
constexpr auto kFull = RecomputePolicy::kFull;

struct LoraLinear {
  Variable weight;          // [out, in], frozen
  Variable lora_a, lora_b;  // [R, in], [out, R], f32
};

struct Layer {
  Variable input_norm, post_norm;  // [H]
  LoraLinear q, k, v, o, gate, up, down;
};

// Weights by name, so that every run has the same ones.
class Model {
 public:
  Model(Device& device, DType dtype) : device_(device), dtype_(dtype) {
    for (int i = 0; i < kLayers; ++i) {
      const std::string name = "layers." + std::to_string(i) + ".";
      const auto linear = [&](const std::string& part, int64_t out,
                              int64_t in) {
        return LoraLinear{
            Make(name + part, {out, in}, dtype_, false),
            Make(name + part + ".a", {kLoraRank, in}, kF32, true),
            Make(name + part + ".b", {out, kLoraRank}, kF32, true)};
      };
      layers_.push_back({Make(name + "input_norm", {kH}, dtype_, false),
                         Make(name + "post_norm", {kH}, dtype_, true),
                         linear("q", kN * kD, kH), linear("k", kG * kD, kH),
                         linear("v", kG * kD, kH), linear("o", kH, kN * kD),
                         linear("gate", kI, kH), linear("up", kI, kH),
                         linear("down", kH, kI)});
    }
    // The second layer has the first one's query adapter too.
    layers_[1].q.lora_a = layers_[0].q.lora_a;
    head_ = Make("head", {kV, kH}, dtype_, false);
    x_ = Make("x", {kT, kH}, dtype_, false);  // a frozen embedding's rows
    positions_ = Tensor::Empty(device_, {kT}, kI32);
    labels_ = Tensor::Empty(device_, {kT}, kI32);
    for (int32_t t = 0; t < kT; ++t) {
      positions_.mutable_data<int32_t>()[t] = t < kSplit ? t : t - kSplit;
      labels_.mutable_data<int32_t>()[t] = (t * 7) % int32_t{kV};
    }
  }

  Variable Loss(RecomputePolicy outer, RecomputePolicy mlp) const {
    Variable x = x_;
    for (size_t i = 0; i < layers_.size(); ++i) {
      x = autograd::RecomputeOne(
          outer, "layer " + std::to_string(i), {&x, 1},
          [this, i, mlp](Inputs in) { return Run(layers_[i], in[0], mlp); });
    }
    return autograd::RecomputeOne(outer, "head", {&x, 1}, [this](Inputs in) {
      return LinearCrossEntropy(in[0], head_, labels_).loss;
    });
  }

  const std::vector<Variable>& parameters() const { return parameters_; }

 private:
  static constexpr int32_t kSplit = 130;  // where the second document begins

  Variable Make(const std::string& name, const Shape& shape, DType dtype,
                bool needs_grad) {
    const MemoryScope scope(device_, MemoryTag::kWeights);
    Tensor values = Tensor::Empty(device_, shape, dtype);
    FillNormal(values, Rng{1, StreamOf(name)}, shape.ndim() == 1 ? 1 : 0,
               1 / std::sqrt(static_cast<double>(shape.dim(-1))));
    Variable result(std::move(values), needs_grad);
    if (needs_grad) parameters_.push_back(result);
    return result;
  }

  Variable Run(const LoraLinear& linear, const Variable& x) const {
    const Variable dropped = Dropout(x, 0.2, *stream_);
    const Variable low =
        Linear(dropped, linear.lora_a, {}, {.out_dtype = kF32});
    return AddScaled(Linear(x, linear.weight),
                     Linear(low, linear.lora_b, {}, {.out_dtype = dtype_}),
                     0.5);
  }

  Variable Run(const Layer& layer, const Variable& x,
               RecomputePolicy mlp) const {
    RopeOptions rope;
    rope.rotary_dim = kD;
    const Variable h = RmsNorm(x, layer.input_norm, 1e-6);
    const Variable q =
        Rope(Reshape(Run(layer.q, h), {kT, kN, kD}), positions_, rope);
    const Variable k =
        Rope(Reshape(Run(layer.k, h), {kT, kG, kD}), positions_, rope);
    const Variable v = Reshape(Run(layer.v, h), {kT, kG, kD});
    AttentionOptions options;
    options.cu_seqlens = std::make_shared<const std::vector<int32_t>>(
        std::vector<int32_t>{0, kSplit, int32_t{kT}});
    const Variable mixed = Attention(q, k, v, options);
    const Variable y = Add(x, Run(layer.o, Reshape(mixed, {kT, kN * kD})));
    return autograd::RecomputeOne(
        mlp, "mlp", {&y, 1}, [&](Inputs in) { return RunMlp(layer, in[0]); });
  }

  Variable RunMlp(const Layer& layer, const Variable& y) const {
    const Variable h = RmsNorm(y, layer.post_norm, 1e-6);
    return Add(y,
               Run(layer.down, SwiGlu(Run(layer.gate, h), Run(layer.up, h))));
  }

  Device& device_;
  const DType dtype_;
  std::vector<Layer> layers_;
  Variable head_, x_;
  Tensor positions_, labels_;
  std::vector<Variable> parameters_;
  std::unique_ptr<autograd::RngStream> stream_ =
      std::make_unique<autograd::RngStream>(Rng{3, 4});
};

struct Outcome {
  std::vector<std::vector<double>> bits;  // loss, then every gradient
  int64_t saved = 0;                      // activation bytes kept
  int64_t moved = 0;
  int64_t peak = 0;  // of all memory beyond the model
};

Outcome RunStep(DType dtype, RecomputePolicy outer, RecomputePolicy mlp,
                autograd::SavedTensorHooks* hooks = nullptr) {
  ContextOptions options;
  options.num_threads = 2;
  options.poison_memory = true;
  const std::unique_ptr<Context> context =
      std::move(Context::Create(options)).value();
  Device& device = context->cpu();
  const Model model(device, dtype);
  const int64_t before = device.allocator().stats().allocated;
  device.allocator().ResetPeak();
  Outcome outcome;
  Variable loss;
  {
    const autograd::SavedTensorScope scope(hooks);
    loss = model.Loss(outer, mlp);
  }
  const autograd::SavedReport report = autograd::CountSaved({&loss, 1});
  outcome.saved = report.total.activations;
  outcome.moved = report.total.moved;
  autograd::Backward(loss);
  outcome.peak = device.allocator().stats().peak_allocated - before;
  outcome.bits.push_back(ToDoubles(loss.value()));
  EXPECT_TRUE(std::isfinite(outcome.bits[0][0]));
  for (const Variable& parameter : model.parameters()) {
    if (!parameter.grad()) {
      outcome.bits.emplace_back();  // replaced by the shared adapter
      continue;
    }
    outcome.bits.push_back(ToDoubles(parameter.grad()));
    double sum = 0;
    for (const double g : outcome.bits.back()) sum += std::abs(g);
    EXPECT_TRUE(std::isfinite(sum) && sum > 0);
  }
  return outcome;
}

class RecomputeModelTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, RecomputeModelTest,
                         ::testing::Values(kF32, kBF16), [](const auto& info) {
                           return std::string(ToString(info.param));
                         });

TEST_P(RecomputeModelTest, SameBitsUnderEveryPolicy) {
  const Outcome want = RunStep(GetParam(), kNone, kNone);
  for (const auto& [outer, mlp] : {std::pair{kSelective, kNone},
                                   {kFull, kNone},
                                   {kNone, kSelective},
                                   {kNone, kFull},
                                   {kSelective, kSelective},
                                   {kSelective, kFull},
                                   {kFull, kSelective},
                                   {kFull, kFull}}) {
    EXPECT_EQ(RunStep(GetParam(), outer, mlp).bits, want.bits)
        << static_cast<int>(outer) << " " << static_cast<int>(mlp);
  }
}

TEST_P(RecomputeModelTest, MemoryFallsFromNoneToSelectiveToFull) {
  const Outcome none = RunStep(GetParam(), kNone, kNone);
  const Outcome selective = RunStep(GetParam(), kSelective, kSelective);
  const Outcome full = RunStep(GetParam(), kFull, kNone);
  const Outcome nested = RunStep(GetParam(), kFull, kFull);
  EXPECT_GT(none.saved, selective.saved);
  EXPECT_GT(selective.saved, full.saved);
  EXPECT_EQ(full.saved, nested.saved);
  EXPECT_GT(none.peak, selective.peak);
  EXPECT_GT(selective.peak, full.peak);
  EXPECT_GE(full.peak, nested.peak);
  RecordProperty("peak_bytes", std::to_string(none.peak) + " " +
                                   std::to_string(selective.peak) + " " +
                                   std::to_string(full.peak) + " " +
                                   std::to_string(nested.peak));
  RecordProperty("saved_bytes", std::to_string(none.saved) + " " +
                                    std::to_string(selective.saved) + " " +
                                    std::to_string(full.saved));
}

TEST_P(RecomputeModelTest, OffloadKeepsBitsAndFreesMemory) {
  const Outcome want = RunStep(GetParam(), kNone, kNone);
  for (const RecomputePolicy policy : {kNone, kSelective, kFull}) {
    const Outcome kept = RunStep(GetParam(), policy, kNone);
    autograd::FileOffload files(::testing::TempDir(), {.min_bytes = 0});
    const Outcome moved = RunStep(GetParam(), policy, kNone, &files);
    EXPECT_EQ(moved.bits, want.bits);
    EXPECT_EQ(moved.saved, 0);
    EXPECT_EQ(moved.moved, kept.saved);
    EXPECT_LT(moved.peak, kept.peak);
  }
}

}  // namespace
}  // namespace espalier
