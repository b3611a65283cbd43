#include "espalier/ops/adamw/adamw.h"

#include <cmath>
#include <vector>

#include "espalier/runtime/guard.h"
#include "espalier/tests/support/compare.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

AdamWUpdate Update(int64_t step) {
  AdamWUpdate update;
  update.learning_rate = 0.01;
  update.weight_decay = 0.1;
  update.gradient_scale = 0.5;
  update.step = step;
  return update;
}

// Parameter and moments after three steps over n elements.
std::vector<Tensor> ThreeSteps(Device& device, DType dtype, int64_t n) {
  const auto make = [&](uint64_t seed) {
    return test::FromDoubles(device, {n}, dtype,
                             ToDoubles(test::Normal({n}, seed).value()));
  };
  std::vector<Tensor> state = {make(1), Tensor::Zeros(device, {n}, dtype),
                               Tensor::Zeros(device, {n}, dtype)};
  for (int64_t step = 1; step <= 3; ++step) {
    AdamW(state[0], make(10 + static_cast<uint64_t>(step)), state[1], state[2],
          Update(step));
  }
  return state;
}

TEST(AdamWTest, FirstStepIsSignTimesLearningRateAndDecay) {
  const Tensor p = test::FromDoubles(test::Cpu(), {2}, kF64, {1, -2});
  const Tensor g = test::FromDoubles(test::Cpu(), {2}, kF64, {3, -5});
  const Tensor m = Tensor::Zeros(test::Cpu(), {2}, kF64);
  const Tensor v = Tensor::Zeros(test::Cpu(), {2}, kF64);
  AdamW(p, g, m, v, Update(1));
  const std::vector<double> got = ToDoubles(p);
  EXPECT_NEAR(got[0], 1 * 0.999 - 0.01, 1e-9);
  EXPECT_NEAR(got[1], -2 * 0.999 + 0.01, 1e-9);
  EXPECT_NEAR(ToDoubles(m)[0], 0.1 * 1.5, 1e-12);
  EXPECT_NEAR(ToDoubles(v)[1], 0.001 * 6.25, 1e-12);
}

TEST(AdamWTest, EveryInstructionSetMatchesF64AndThreadsAgree) {
  for (const int64_t n : {0, 1, 33, 40000}) {
    const std::vector<Tensor> want = ThreeSteps(test::Cpu(), kF64, n);
    for (const Isa isa : test::RunnableIsas()) {
      const std::vector<Tensor> got =
          ThreeSteps(test::ContextFor(isa, 1).cpu(), kF32, n);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_LE(test::RelativeError(got[i], want[i]), 1e-5) << n;
        for (const int threads : {2, 3, 7}) {
          EXPECT_TRUE(test::SameBits(
              got[i],
              ThreeSteps(test::ContextFor(isa, threads).cpu(), kF32, n)[i]));
        }
      }
    }
  }
  EXPECT_EQ(
      test::CountRegions(
          DetectIsa(), [](Device& device) { ThreeSteps(device, kF32, 40000); }),
      3);
}

TEST(AdamWTest, CopyIsTheParameterInBF16) {
  for (const Isa isa : test::RunnableIsas()) {
    Device& device = test::ContextFor(isa, 2).cpu();
    for (const DType dtype : {kF32, kF64}) {
      const auto make = [&](uint64_t seed) {
        return test::FromDoubles(device, {33}, dtype,
                                 ToDoubles(test::Normal({33}, seed).value()));
      };
      const Tensor p = make(1);
      const Tensor copy = Tensor::Zeros(device, {33}, kBF16);
      AdamW(p, make(2), Tensor::Zeros(device, {33}, dtype),
            Tensor::Zeros(device, {33}, dtype), Update(1), copy);
      EXPECT_TRUE(test::SameBits(
          copy, test::FromDoubles(device, {33}, kBF16, ToDoubles(p))));
    }
  }
}

TEST(AdamWTest, RefusesOtherShapes) {
  const Tensor two = Tensor::Zeros(test::Cpu(), {2}, kF32);
  const Tensor three = Tensor::Zeros(test::Cpu(), {3}, kF32);
  const absl::Status s =
      internal::Guard([&] { AdamW(two, three, two, two, Update(1)); });
  EXPECT_THAT(
      s.message(),
      ::testing::HasSubstr("parameter is f32 [2] on cpu, gradient f32 [3]"));
}

// The shape of an absent tensor is that of a scalar.
TEST(AdamWTest, RefusesAbsentTensors) {
  const Tensor one = Tensor::Zeros(test::Cpu(), {}, kF32);
  for (int absent = 0; absent < 4; ++absent) {
    Tensor t[4] = {one, one, one, one};
    t[absent] = Tensor();
    const absl::Status s =
        internal::Guard([&] { AdamW(t[0], t[1], t[2], t[3], Update(1)); });
    EXPECT_THAT(s.message(), ::testing::HasSubstr("absent")) << absent;
  }
}

}  // namespace
}  // namespace espalier
