#include "espalier/ops/matmul/prepared_weight.h"

#include <memory>
#include <string>
#include <vector>

#include "espalier/autograd/backward.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

Tensor Values(Device& device, const Shape& shape, DType dtype, uint64_t seed) {
  return test::FromDoubles(device, shape, dtype,
                           ToDoubles(test::Normal(shape, seed).value()));
}

int64_t WeightBytes(Device& device) {
  const auto tag = static_cast<size_t>(MemoryTag::kWeights);
  return device.allocator().stats().by_tag[tag];
}

class PreparedWeightTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, PreparedWeightTest,
                         ::testing::ValuesIn(test::Targets(1e-5, 4e-2)),
                         ::testing::PrintToStringParamName());

// y and the gradients of x, bias and addend; prepared, or the weight itself.
std::vector<std::vector<double>> Step(const Shape& x_shape,
                                      const Tensor& weight, DType dtype,
                                      const PrepareOptions* options) {
  Device& device = weight.device();
  const Shape y_shape = x_shape.WithDim(-1, weight.dim(0));
  const Variable x(Values(device, x_shape, dtype, 1), true);
  const Variable bias(Values(device, {weight.dim(0)}, kF32, 3), true);
  const Variable addend(Values(device, y_shape, dtype, 4), true);
  const LinearOptions linear = {.alpha = 0.3, .beta = -0.7};
  const Variable y =
      options == nullptr
          ? Linear(x, Variable(weight), bias, linear, addend)
          : Linear(x, PrepareWeight(weight, *options), bias, linear, addend);
  autograd::Backward(y, Values(device, y_shape, dtype, 5));
  return {ToDoubles(y.value()), ToDoubles(x.grad()), ToDoubles(bias.grad()),
          ToDoubles(addend.grad())};
}

TEST_P(PreparedWeightTest, SameBitsAsLinear) {
  Device& device = test::ContextFor(GetParam().isa, 2).cpu();
  for (DType dtype : {kF32, kBF16}) {
    const Tensor weight = Values(device, {93, 1100}, dtype, 2);
    for (const Shape& x : {Shape{0, 1100}, Shape{1, 1100}, Shape{9, 1100},
                           Shape{2, 30, 1100}, Shape{530, 1100}}) {
      const auto want = Step(x, weight, GetParam().dtype, nullptr);
      for (int layouts = 1; layouts <= 3; ++layouts) {
        const PrepareOptions options = {.activations = GetParam().dtype,
                                        .forward = (layouts & 1) != 0,
                                        .input_gradient = (layouts & 2) != 0};
        EXPECT_EQ(Step(x, weight, GetParam().dtype, &options), want)
            << ToString(dtype) << ToString(x) << layouts;
      }
    }
  }
}

TEST_P(PreparedWeightTest, SameBitsForAllThreads) {
  const test::Fn fn = [&](const std::vector<Variable>& in) {
    const Tensor& x = in[0].value();
    return Linear(in[0],
                  PrepareWeight(Values(x.device(), {270, 130}, x.dtype(), 2),
                                {.activations = x.dtype()}),
                  in[1]);
  };
  EXPECT_TRUE(test::SameBitsForAllThreads(fn, GetParam(), {{301, 130}, {270}}));
}

TEST_P(PreparedWeightTest, ReportsExactlyItsBytes) {
  Device& device = test::ContextFor(GetParam().isa, 2).cpu();
  const int64_t before = WeightBytes(device);
  const MemoryScope scope(device, MemoryTag::kWeights);
  Tensor weight = Values(device, {1024, 512}, GetParam().dtype, 2);
  const int64_t own = WeightBytes(device) - before;
  ASSERT_EQ(own, weight.num_bytes());
  for (int layouts = 1; layouts <= 3; ++layouts) {
    const PreparedWeight prepared =
        PrepareWeight(weight, {.activations = GetParam().dtype,
                               .forward = (layouts & 1) != 0,
                               .input_gradient = (layouts & 2) != 0});
    EXPECT_EQ(WeightBytes(device) - before, own + prepared.prepared_bytes());
    EXPECT_EQ(prepared.resident_bytes() - prepared.prepared_bytes(),
              layouts == 3 ? 0 : own);
    const bool native =
        GetParam().dtype == kF32 || GetParam().isa == Isa::kAvx512Bf16;
    EXPECT_EQ(prepared.prepared_bytes(),
              (layouts == 3 ? 2 : 1) * (native ? own : 2 * own));
  }
  const PreparedWeight both =
      PrepareWeight(weight, {.activations = GetParam().dtype});
  weight = Tensor();
  EXPECT_EQ(WeightBytes(device) - before, both.resident_bytes());
}

// Forward and backward on layouts take the memory of their results and of the
// workspace, which holds no copy of the weight.
TEST_P(PreparedWeightTest, StepsKeepNoCopy) {
  Device& device = test::ContextFor(GetParam().isa, 2).cpu();
  const Tensor weight = Values(device, {2048, 1024}, GetParam().dtype, 2);
  const PreparedWeight prepared =
      PrepareWeight(weight, {.activations = GetParam().dtype});
  const Variable x(Values(device, {20, 1024}, GetParam().dtype, 1), true);
  const Tensor dy = Values(device, {20, 2048}, GetParam().dtype, 5);
  const int64_t before = device.allocator().stats().allocated;
  const int64_t weights = WeightBytes(device);
  device.allocator().ResetPeak();
  const Variable y = Linear(x, prepared);
  autograd::Backward(y, dy);
  const MemoryStats stats = device.allocator().stats();
  EXPECT_EQ(WeightBytes(device), weights);
  EXPECT_LT(stats.peak_allocated - before, weight.num_bytes() / 4);
}

TEST(PreparedWeightBytesTest, MappedRowsAreNotResident) {
  const std::vector<float> rows(size_t{48} * 32, 0.5f);
  const Tensor weight =
      Tensor::MapReadOnly(test::Cpu(), {48, 32}, kF32, rows.data(), nullptr);
  const PreparedWeight prepared =
      PrepareWeight(weight, {.activations = kF32, .input_gradient = false});
  EXPECT_EQ(prepared.resident_bytes(), 48 * 32 * 4);
  EXPECT_EQ(ToString(prepared), "f32 [48, 32] for f32, forward, 6144 bytes");
}

TEST(PreparedWeightCheckTest, RefusesWhatDoesNotFit) {
  const auto message = [](auto fn) {
    return std::string(internal::Guard(fn).message());
  };
  Device& cpu = test::Cpu();
  const Tensor weight = Tensor::Zeros(cpu, {48, 32}, kBF16);
  EXPECT_THAT(message([&] {
                PrepareWeight(Tensor::Zeros(cpu, {48, 32}, kF64));
              }),
              ::testing::HasSubstr("weight is f64 [48, 32] on cpu for bf16"));
  EXPECT_THAT(message([&] { PrepareWeight(weight, {.activations = kF16}); }),
              ::testing::HasSubstr("for f16 activations"));
  EXPECT_THAT(message([&] { PrepareWeight(weight.Transpose(0, 1)); }),
              ::testing::HasSubstr("weight is bf16 [32, 48]"));
  EXPECT_THAT(message([&] {
                PrepareWeight(weight,
                              {.forward = false, .input_gradient = false});
              }),
              ::testing::HasSubstr("prepared for nothing"));
  const PreparedWeight prepared = PrepareWeight(weight);
  const auto with = [&](const Tensor& x, const LinearOptions& options = {}) {
    return message([&] { Linear(Variable(x), prepared, {}, options); });
  };
  EXPECT_EQ(with(Tensor::Zeros(cpu, {3, 32}, kBF16)), "");
  EXPECT_THAT(with(Tensor::Zeros(cpu, {3, 48}, kBF16)),
              ::testing::HasSubstr("weight is bf16 [48, 32] for bf16, forward "
                                   "and input gradient"));
  EXPECT_THAT(with(Tensor::Zeros(cpu, {3, 32}, kF32)),
              ::testing::HasSubstr("for x f32 [3, 32]"));
  EXPECT_THAT(with(Tensor::Zeros(cpu, {3, 32}, kBF16), {.out_dtype = kF32}),
              ::testing::HasSubstr("out f32"));
  const Tensor columns = Tensor::Zeros(cpu, {32, 3}, kBF16);
  EXPECT_THAT(with(columns.Transpose(0, 1)),
              ::testing::HasSubstr("for x bf16 [3, 32]"));
  const auto plus = [&](const Tensor& bias, const LinearOptions& options,
                        const Tensor& addend) {
    return message([&] {
      const Variable x(Tensor::Zeros(cpu, {3, 32}, kBF16));
      Linear(x, prepared, bias ? Variable(bias) : Variable(), options,
             addend ? Variable(addend) : Variable());
    });
  };
  EXPECT_EQ(plus(Tensor::Zeros(cpu, {48}, kF32), {.beta = 2},
                 Tensor::Zeros(cpu, {3, 48}, kBF16)),
            "");
  EXPECT_THAT(plus(Tensor::Zeros(cpu, {47}, kF32), {}, {}),
              ::testing::HasSubstr("bias is f32 [47] on cpu for 48 output"));
  EXPECT_THAT(plus({}, {}, Tensor::Zeros(cpu, {3, 32}, kBF16)),
              ::testing::HasSubstr("addend is bf16 [3, 32] on cpu for a result "
                                   "bf16 [3, 48]"));
  EXPECT_THAT(plus({}, {.beta = 2}, {}),
              ::testing::HasSubstr("beta is 2 without an addend"));
  EXPECT_THAT(
      with(Tensor::Zeros(cpu.context().sim(), {3, 32}, kBF16)),
      ::testing::HasSubstr("weight is on cpu, x is bf16 [3, 32] on sim"));
}

}  // namespace
}  // namespace espalier
