#include "espalier/ops/muon/muon.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "espalier/ops/matmul/matmul.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/compare.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

Tensor NormalOn(Device& device, DType dtype, const Shape& shape,
                uint64_t seed) {
  return test::FromDoubles(device, shape, dtype,
                           ToDoubles(test::Normal(shape, seed).value()));
}

// A rotation turned by the iteration keeps its direction; every singular value
// goes the way of the scalar polynomial.
TEST(MuonTest, SingularValuesFollowThePolynomial) {
  const double c = std::cos(0.4);
  const double s = std::sin(0.4);
  // Rotation times diag(3, 1).
  const Tensor matrix =
      test::FromDoubles(test::Cpu(), {2, 2}, kF64, {3 * c, -s, 3 * s, c});
  double x[2] = {3 / std::sqrt(10.0), 1 / std::sqrt(10.0)};
  for (int i = 0; i < 5; ++i) {
    for (double& v : x) {
      v = 3.4445 * v - 4.7750 * v * v * v + 2.0315 * v * v * v * v * v;
    }
  }
  const std::vector<double> got = ToDoubles(NewtonSchulz(matrix, 5));
  const double want[4] = {x[0] * c, -x[1] * s, x[0] * s, x[1] * c};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(got[size_t(i)], want[i], 1e-10) << i;
}

// Both orientations end with nearly orthonormal short sides.
TEST(MuonTest, ShortSideBecomesOrthonormal) {
  for (const Shape& shape : {Shape{8, 41}, Shape{41, 8}}) {
    const Variable x(NewtonSchulz(NormalOn(test::Cpu(), kF32, shape, 3), 5));
    MatMulOptions options;
    options.transpose_a = shape[0] > shape[1];
    options.transpose_b = !options.transpose_a;
    const std::vector<double> gram = ToDoubles(MatMul(x, x, options).value());
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j < 8; ++j) {
        EXPECT_NEAR(gram[size_t(i * 8 + j)], i == j ? 1 : 0, 0.5);
      }
    }
  }
}

std::vector<Tensor> TwoSteps(Device& device, DType dtype, const Shape& shape,
                             const MuonUpdate& update) {
  std::vector<Tensor> state = {NormalOn(device, dtype, shape, 1),
                               Tensor::Zeros(device, shape, dtype)};
  for (uint64_t step = 1; step <= 2; ++step) {
    Muon(state[0], NormalOn(device, dtype, shape, 10 + step), state[1], update);
  }
  return state;
}

TEST(MuonTest, EveryInstructionSetMatchesF64) {
  MuonUpdate update;
  update.learning_rate = 0.1;
  update.weight_decay = 0.2;
  update.gradient_scale = 0.5;
  for (const MuonScale scale : {MuonScale::kSpectral, MuonScale::kMatchRms}) {
    update.scale = scale;
    update.nesterov = scale == MuonScale::kSpectral;
    for (const Shape& shape : {Shape{7, 33}, Shape{65, 12}, Shape{1, 1}}) {
      const auto want = TwoSteps(test::Cpu(), kF64, shape, update);
      for (const Isa isa : test::RunnableIsas()) {
        const auto got =
            TwoSteps(test::ContextFor(isa, 1).cpu(), kF32, shape, update);
        for (size_t i = 0; i < 2; ++i) {
          EXPECT_LE(test::RelativeError(got[i], want[i]), 1e-4)
              << ToString(shape);
        }
      }
    }
  }
}

// Several tiles of products; fewer of them in instrumented builds.
#if defined(ESPALIER_ASAN) || defined(ESPALIER_EMULATED)
constexpr int64_t kSides[] = {140, 260};
#else
constexpr int64_t kSides[] = {300, 520};
#endif

TEST(MuonTest, ThreadsAgree) {
  const Shape shape = {kSides[0], kSides[1]};
  MuonUpdate update;
  update.learning_rate = 0.1;
  update.weight_decay = 0.2;
  for (const Isa isa : test::RunnableIsas()) {
    const auto want =
        TwoSteps(test::ContextFor(isa, 1).cpu(), kF32, shape, update);
    for (const int threads : {2, 3, 7}) {
      const auto got =
          TwoSteps(test::ContextFor(isa, threads).cpu(), kF32, shape, update);
      EXPECT_TRUE(test::SameBits(got[0], want[0])) << threads;
      EXPECT_TRUE(test::SameBits(got[1], want[1])) << threads;
    }
    // Three products each in five iterations of two steps, at least.
    EXPECT_GE(test::CountRegions(isa,
                                 [&](Device& device) {
                                   TwoSteps(device, kF32, shape, update);
                                 }),
              2 * 5 * 3);
  }
}

TEST(MuonTest, OneStepByHand) {
  const Tensor p = test::FromDoubles(test::Cpu(), {1, 1}, kF64, {3});
  const Tensor g = test::FromDoubles(test::Cpu(), {1, 1}, kF64, {-4});
  const Tensor b = Tensor::Zeros(test::Cpu(), {1, 1}, kF64);
  MuonUpdate update;
  update.learning_rate = 0.1;
  update.weight_decay = 0.5;
  update.num_iterations = 0;
  Muon(p, g, b, update);
  EXPECT_NEAR(ToDoubles(p)[0], 3 * 0.95 + 0.1 * 0.2, 1e-12);
  EXPECT_EQ(ToDoubles(b)[0], -4);
}

TEST(MuonTest, ZeroGradientDoesNotMove) {
  const Tensor p = NormalOn(test::Cpu(), kF32, {3, 5}, 1);
  const std::vector<double> before = ToDoubles(p);
  MuonUpdate update;
  update.learning_rate = 0.1;
  Muon(p, Tensor::Zeros(test::Cpu(), {3, 5}, kF32),
       Tensor::Zeros(test::Cpu(), {3, 5}, kF32), update);
  EXPECT_EQ(ToDoubles(p), before);
}

// A norm whose inverse f32 does not have.
TEST(MuonTest, VanishingGradientDoesNotMove) {
  for (const double g : {1e-45, 1e-40, 5e-39}) {
    const Tensor p = NormalOn(test::Cpu(), kF32, {2, 3}, 1);
    const std::vector<double> before = ToDoubles(p);
    MuonUpdate update;
    update.learning_rate = 0.1;
    Muon(p, test::FromDoubles(test::Cpu(), {2, 3}, kF32, {0, 0, g, 0, 0, 0}),
         Tensor::Zeros(test::Cpu(), {2, 3}, kF32), update);
    EXPECT_EQ(ToDoubles(p), before) << g;
  }
}

// Whatever there is memory for, parameter and momentum move together.
TEST(MuonTest, OutOfMemoryMovesNothing) {
  constexpr int64_t kSide = 160;
  int refused = 0;
  for (int64_t budget = 400 << 10; budget < 2000 << 10; budget += 50 << 10) {
    auto context =
        *Context::Create({.num_threads = 1, .memory_budget_bytes = budget});
    Tensor p, g, b;
    const absl::Status room = internal::Guard([&] {
      p = NormalOn(context->cpu(), kF32, {kSide, kSide}, 1);
      g = NormalOn(context->cpu(), kF32, {kSide, kSide}, 2);
      b = Tensor::Zeros(context->cpu(), {kSide, kSide}, kF32);
    });
    if (!room.ok()) continue;
    const std::vector<float> before(p.data<float>(),
                                    p.data<float>() + kSide * kSide);
    MuonUpdate update;
    update.learning_rate = 0.1;
    const absl::Status s = internal::Guard([&] { Muon(p, g, b, update); });
    const bool moved =
        !std::equal(before.begin(), before.end(), p.data<float>());
    EXPECT_EQ(moved, s.ok()) << budget;
    EXPECT_EQ(b.data<float>()[0] != 0, s.ok()) << budget;
    refused += s.ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 3);
}

TEST(MuonTest, NamesBothShapes) {
  const Tensor a = Tensor::Zeros(test::Cpu(), {2, 3}, kF32);
  const Tensor b = Tensor::Zeros(test::Cpu(), {3, 2}, kF32);
  const absl::Status s = internal::Guard([&] { Muon(a, b, a, MuonUpdate()); });
  EXPECT_THAT(s.message(), ::testing::HasSubstr("parameter is f32 [2, 3]"));
  EXPECT_THAT(s.message(), ::testing::HasSubstr("gradient f32 [3, 2]"));
}

TEST(MuonTest, ReadOnlyBufferMovesNothing) {
  alignas(64) const float zeros[6] = {};
  const Tensor b =
      Tensor::MapReadOnly(test::Cpu(), {2, 3}, kF32, zeros, nullptr);
  const Tensor p = NormalOn(test::Cpu(), kF32, {2, 3}, 1);
  const std::vector<double> before = ToDoubles(p);
  const absl::Status s = internal::Guard([&] { Muon(p, p, b, MuonUpdate()); });
  EXPECT_THAT(s.message(), ::testing::HasSubstr("the buffer is read-only"));
  EXPECT_EQ(ToDoubles(p), before);
}

}  // namespace
}  // namespace espalier
