#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"

#include "espalier/autograd/backward.h"
#include "espalier/autograd/variable.h"
#include "espalier/ops/adamw/adamw.h"
#include "espalier/ops/attention/attention.h"
#include "espalier/ops/elementwise/elementwise.h"
#include "espalier/ops/embedding/embedding.h"
#include "espalier/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "espalier/ops/matmul/matmul.h"
#include "espalier/ops/reshape/reshape.h"
#include "espalier/ops/rms_norm/rms_norm.h"
#include "espalier/ops/rope/rope.h"
#include "espalier/ops/swiglu/swiglu.h"
#include "espalier/runtime/context.h"
#include "espalier/tests/support/compare.h"

// One training step of a small decoder layer on each device. On sim it proves
// that no op reads device memory from the host or uses a block after its free;
// on meta, that a dry run counts the bytes of the real one.
namespace espalier::test {

namespace {

constexpr int64_t kTokens = 37, kHidden = 48, kWide = 80, kVocab = 101;
constexpr int64_t kHeads = 3, kKeyValueHeads = 1, kHeadDim = 16;

Tensor Random(Device& device, const Shape& shape, DType dtype, uint64_t seed) {
  if (device.type() == kMeta) return Tensor::Empty(device, shape, dtype);
  std::mt19937_64 random(seed);
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  for (float& value : values) {
    value = static_cast<float>(static_cast<int64_t>(random() >> 40) -
                               (int64_t{1} << 23)) *
            0x1p-25f;
  }
  if (dtype == kF32) return Tensor::FromHost<float>(device, shape, values);
  std::vector<BFloat16> rounded;
  rounded.reserve(values.size());
  for (const float value : values) rounded.emplace_back(value);
  return Tensor::FromHost<BFloat16>(device, shape, rounded);
}

Tensor Integers(Device& device, const Shape& shape, int64_t below) {
  if (device.type() == kMeta) return Tensor::Empty(device, shape, kI32);
  std::vector<int32_t> values;
  values.reserve(static_cast<size_t>(shape.num_elements()));
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    values.push_back(static_cast<int32_t>(i * 31 % below));
  }
  return Tensor::FromHost<int32_t>(device, shape, values);
}

struct Step {
  Tensor loss;
  std::vector<Tensor> gradients;
  Tensor parameter;  // after an update
};

Step Train(Device& device, DType dtype) {
  uint64_t seed = 0;
  std::vector<Variable> weights;
  const auto weight = [&](const Shape& shape) {
    weights.emplace_back(Random(device, shape, dtype, ++seed), true);
    return weights.back();
  };
  const Tensor ids = Integers(device, {kTokens}, kVocab);
  const Tensor positions = Integers(device, {kTokens}, kTokens);
  RopeOptions rope;
  rope.rotary_dim = kHeadDim;
  AttentionOptions attention;
  attention.cu_seqlens = std::make_shared<const std::vector<int32_t>>(
      std::vector<int32_t>{0, 11, 11, kTokens});

  const Variable table = weight({kVocab, kHidden});
  const Variable x = Embedding(table, ids);
  const Variable normed = RmsNorm(x, weight({kHidden}), 1e-6);
  const auto heads = [&](int64_t count) {
    return Reshape(Linear(normed, weight({count * kHeadDim, kHidden})),
                   {kTokens, count, kHeadDim});
  };
  const Variable q = Rope(heads(kHeads), positions, rope);
  const Variable k = Rope(heads(kKeyValueHeads), positions, rope);
  const Variable mixed = Attention(q, k, heads(kKeyValueHeads), attention);
  const Variable y = Add(x, Linear(Reshape(mixed, {kTokens, kHeads * kHeadDim}),
                                   weight({kHidden, kHeads * kHeadDim})));
  const Variable inner = RmsNorm(y, weight({kHidden}), 1e-6);
  const Variable gated = SwiGlu(Linear(inner, weight({kWide, kHidden})),
                                Linear(inner, weight({kWide, kHidden})));
  const Variable z = Add(y, Linear(gated, weight({kHidden, kWide})));
  const auto result = LinearCrossEntropy(z, table, ids);
  autograd::Backward(result.loss);

  Step step;
  step.loss = result.loss.value();
  for (const Variable& variable : weights) {
    step.gradients.push_back(variable.grad());
  }
  if (dtype == kF32) {
    const Tensor& parameter = weights[3].value();
    AdamW(parameter, weights[3].grad(), ZerosLike(parameter),
          ZerosLike(parameter), {.learning_rate = 1e-2});
    step.parameter = parameter;
  }
  return step;
}

std::unique_ptr<Context> MakeContext(uint64_t sim_seed) {
  ContextOptions options;
  options.num_threads = 2;
  options.sim_seed = sim_seed;
  auto context = Context::Create(options);
  EXPECT_TRUE(context.ok()) << context.status();
  return *std::move(context);
}

class DevicesTest : public ::testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(DTypes, DevicesTest, ::testing::Values(kF32, kBF16));

TEST_P(DevicesTest, SimHasTheBitsOfTheCpu) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    auto context = MakeContext(seed);
    const Step expected = Train(context->cpu(), GetParam());
    const Step got = Train(context->sim(), GetParam());
    EXPECT_TRUE(SameBits(got.loss.ToHost(), expected.loss));
    ASSERT_EQ(got.gradients.size(), expected.gradients.size());
    for (size_t i = 0; i < got.gradients.size(); ++i) {
      EXPECT_TRUE(SameBits(got.gradients[i].ToHost(), expected.gradients[i]))
          << "weight " << i;
    }
    if (expected.parameter) {
      EXPECT_TRUE(SameBits(got.parameter.ToHost(), expected.parameter));
    }
  }
}

TEST_P(DevicesTest, MetaCountsTheBytesOfTheCpu) {
  auto context = MakeContext(0);
  (void)Train(context->cpu(), GetParam());
  (void)Train(context->meta(), GetParam());
  const MemoryStats cpu = context->cpu().allocator().stats();
  const MemoryStats meta = context->meta().allocator().stats();
  EXPECT_EQ(meta.peak_allocated, cpu.peak_allocated);
  EXPECT_EQ(meta.num_allocations, cpu.num_allocations);
  EXPECT_EQ(meta.peak_by_tag, cpu.peak_by_tag);
  EXPECT_EQ(meta.allocated, 0);
}

}  // namespace

}  // namespace espalier::test
