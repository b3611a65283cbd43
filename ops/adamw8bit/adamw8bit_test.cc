#include "espalier/ops/adamw8bit/adamw8bit.h"

#include <cmath>
#include <vector>

#include "espalier/ops/adamw8bit/internal/kernels.h"
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

struct State {
  Tensor parameter;
  AdamW8BitMoments moments;
};

Tensor NormalF32(Device& device, int64_t n, uint64_t seed) {
  return test::FromDoubles(device, {n}, kF32,
                           ToDoubles(test::Normal({n}, seed).value()));
}

State Start(Device& device, int64_t n) {
  return {NormalF32(device, n, 1), AdamW8BitMoments::Zeros(device, n)};
}

void Step(Device& device, const State& state, int step) {
  const int64_t n = state.parameter.num_elements();
  AdamW8Bit(state.parameter,
            NormalF32(device, n, 10 + static_cast<uint64_t>(step)),
            state.moments, Update(step));
}

State Steps(Device& device, int64_t n, int num_steps) {
  State state = Start(device, n);
  for (int step = 1; step <= num_steps; ++step) Step(device, state, step);
  return state;
}

// The same with the plain loops, given the arguments of the front door.
void StepRef(Device& device, const State& state, int step) {
  const AdamWUpdate u = Update(step);
  const Tensor gradient = NormalF32(device, state.parameter.num_elements(),
                                    10 + static_cast<uint64_t>(step));
  const AdamW8BitMoments& m = state.moments;
  adamw8bit::Ref(
      {state.parameter.view(), gradient.view(), m.m_codes.view(),
       m.v_codes.view(), m.m_scales.view(), m.v_scales.view(), u.beta1, u.beta2,
       u.eps, u.gradient_scale, 1 - u.learning_rate * u.weight_decay,
       u.learning_rate / (1 - std::pow(u.beta1, step)),
       1 / std::sqrt(1 - std::pow(u.beta2, step))},
      device.exec(device.compute_stream()));
}

State CopyTo(Device& device, const State& state) {
  const auto copy = [&](const Tensor& from) {
    Tensor to = Tensor::Empty(device, from.shape(), from.dtype());
    to.CopyFrom(from);
    return to;
  };
  const AdamW8BitMoments& m = state.moments;
  return {
      copy(state.parameter),
      {copy(m.m_codes), copy(m.v_codes), copy(m.m_scales), copy(m.v_scales)}};
}

std::vector<int> Codes(const Tensor& codes) {
  std::vector<int> values;
  for (int64_t i = 0; i < codes.num_elements(); ++i) {
    values.push_back(codes.data<uint8_t>()[i]);
  }
  return values;
}

// f32 and f64 may round a code that lies between two either way.
void ExpectCodesNear(const Tensor& got, const Tensor& want) {
  const std::vector<int> g = Codes(got);
  const std::vector<int> w = Codes(want);
  size_t num_different = 0;
  for (size_t i = 0; i < g.size(); ++i) {
    EXPECT_LE(std::abs(g[i] - w[i]), 1) << i;
    num_different += g[i] != w[i];
  }
  EXPECT_LE(num_different, 2 + g.size() / 1000);
}

// Each step starts from the same state, the later ones from moments that are
// not 0; the change is small beside the parameter, hence the bound.
TEST(AdamW8BitTest, EveryInstructionSetMatchesPlainLoops) {
  for (const int64_t n : {0, 1, 255, 256, 300, 70001}) {
    const State want = Start(test::Cpu(), n);
    for (int step = 1; step <= 4; ++step) {
      const State before = CopyTo(test::Cpu(), want);
      StepRef(test::Cpu(), want, step);
      for (const Isa isa : test::RunnableIsas()) {
        Device& device = test::ContextFor(isa, 2).cpu();
        const State got = CopyTo(device, before);
        Step(device, got, step);
        EXPECT_LE(test::RelativeError(got.parameter, want.parameter), 3e-7)
            << n << " step " << step;
        EXPECT_LE(
            test::RelativeError(got.moments.m_scales, want.moments.m_scales),
            1e-6);
        EXPECT_LE(
            test::RelativeError(got.moments.v_scales, want.moments.v_scales),
            1e-6);
        ExpectCodesNear(got.moments.m_codes, want.moments.m_codes);
        ExpectCodesNear(got.moments.v_codes, want.moments.v_codes);
      }
    }
  }
}

TEST(AdamW8BitTest, ThreadsAgree) {
  for (const Isa isa : test::RunnableIsas()) {
    const State want = Steps(test::ContextFor(isa, 1).cpu(), 70001, 3);
    for (const int threads : {2, 3, 7}) {
      const State got = Steps(test::ContextFor(isa, threads).cpu(), 70001, 3);
      EXPECT_TRUE(test::SameBits(got.parameter, want.parameter));
      EXPECT_TRUE(test::SameBits(got.moments.m_codes, want.moments.m_codes));
      EXPECT_TRUE(test::SameBits(got.moments.v_codes, want.moments.v_codes));
    }
  }
  EXPECT_EQ(test::CountRegions(DetectIsa(),
                               [](Device& device) { Steps(device, 70001, 3); }),
            3);
}

// Finds the minimum of sum(c (p - 1)^2), c from 1e-3 to 1e3, as AdamW does.
TEST(AdamW8BitTest, ConvergesAsFullMomentsDo) {
  constexpr int64_t kCount = 700;
  Device& cpu = test::Cpu();
  const Tensor p8 = Tensor::Zeros(cpu, {kCount}, kF32);
  const Tensor p32 = Tensor::Zeros(cpu, {kCount}, kF32);
  const Tensor m = Tensor::Zeros(cpu, {kCount}, kF32);
  const Tensor v = Tensor::Zeros(cpu, {kCount}, kF32);
  const AdamW8BitMoments moments = AdamW8BitMoments::Zeros(cpu, kCount);
  const Tensor g = Tensor::Zeros(cpu, {kCount}, kF32);
  const auto fill = [&](const Tensor& p) {
    for (int64_t i = 0; i < kCount; ++i) {
      const auto c = static_cast<float>(std::pow(10.0, i % 7 - 3));
      g.mutable_data<float>()[i] = 2 * c * (p.data<float>()[i] - 1);
    }
  };
  for (int64_t step = 1; step <= 400; ++step) {
    AdamWUpdate update;
    update.learning_rate = step <= 300 ? 0.02 : 0.002;
    update.step = step;
    fill(p8);
    AdamW8Bit(p8, g, moments, update);
    fill(p32);
    AdamW(p32, g, m, v, update);
  }
  for (int64_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(p32.data<float>()[i], 1, 0.02) << i;
    EXPECT_NEAR(p8.data<float>()[i], 1, 0.05) << i;
  }
}

TEST(AdamW8BitTest, NamesShapes) {
  Device& cpu = test::Cpu();
  const Tensor two = Tensor::Zeros(cpu, {2}, kF32);
  const absl::Status gradient = internal::Guard([&] {
    AdamW8Bit(two, Tensor::Zeros(cpu, {3}, kF32),
              AdamW8BitMoments::Zeros(cpu, 2), Update(1));
  });
  EXPECT_THAT(
      gradient.message(),
      ::testing::HasSubstr("parameter is f32 [2] on cpu, gradient f32 [3]"));
  const absl::Status moments = internal::Guard(
      [&] { AdamW8Bit(two, two, AdamW8BitMoments::Zeros(cpu, 3), Update(1)); });
  EXPECT_THAT(moments.message(), ::testing::HasSubstr("moments are u8 [3]"));
  const absl::Status absent = internal::Guard([&] {
    AdamW8Bit(Tensor::Zeros(cpu, {}, kF32), Tensor(),
              AdamW8BitMoments::Zeros(cpu, 1), Update(1));
  });
  EXPECT_THAT(absent.message(), ::testing::HasSubstr("gradient absent"));
  const absl::Status no_moments = internal::Guard(
      [&] { AdamW8Bit(two, two, AdamW8BitMoments(), Update(1)); });
  EXPECT_THAT(no_moments.message(), ::testing::HasSubstr("moments are absent"));
}

}  // namespace
}  // namespace espalier
