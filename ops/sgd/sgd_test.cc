#include "espalier/ops/sgd/sgd.h"

#include <vector>

#include "espalier/runtime/guard.h"
#include "espalier/tests/support/compare.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

SgdUpdate Update(double momentum, bool nesterov) {
  SgdUpdate update;
  update.learning_rate = 0.1;
  update.momentum = momentum;
  update.nesterov = nesterov;
  update.weight_decay = 0.2;
  update.gradient_scale = 0.5;
  return update;
}

// Parameter and buffer after three steps over n elements.
std::vector<Tensor> ThreeSteps(Device& device, DType dtype, int64_t n,
                               const SgdUpdate& update) {
  const auto make = [&](uint64_t seed) {
    return test::FromDoubles(device, {n}, dtype,
                             ToDoubles(test::Normal({n}, seed).value()));
  };
  std::vector<Tensor> state = {make(1)};
  if (update.momentum != 0) {
    state.push_back(Tensor::Zeros(device, {n}, dtype));
  }
  for (uint64_t step = 1; step <= 3; ++step) {
    Sgd(state[0], make(10 + step), state.size() > 1 ? state[1] : Tensor(),
        update);
  }
  return state;
}

TEST(SgdTest, TwoStepsByHand) {
  const auto scalar = [](double value) {
    return test::FromDoubles(test::Cpu(), {1}, kF64, {value});
  };
  // g = 2; decay 0.98; plain: 3 * 0.98 - 0.1 * 2
  const Tensor plain = scalar(3);
  Sgd(plain, scalar(4), Tensor(), Update(0, false));
  EXPECT_NEAR(ToDoubles(plain)[0], 2.74, 1e-12);
  // b = 2, then 0.9 * 2 + 2 = 3.8
  const Tensor p = scalar(3);
  const Tensor b = scalar(0);
  Sgd(p, scalar(4), b, Update(0.9, false));
  Sgd(p, scalar(4), b, Update(0.9, false));
  EXPECT_NEAR(ToDoubles(b)[0], 3.8, 1e-12);
  EXPECT_NEAR(ToDoubles(p)[0], 2.74 * 0.98 - 0.38, 1e-12);
  // d = 2 + 0.9 * 2
  const Tensor q = scalar(3);
  Sgd(q, scalar(4), scalar(0), Update(0.9, true));
  EXPECT_NEAR(ToDoubles(q)[0], 3 * 0.98 - 0.1 * 3.8, 1e-12);
}

TEST(SgdTest, EveryInstructionSetMatchesF64AndThreadsAgree) {
  for (const SgdUpdate& update :
       {Update(0, false), Update(0.9, false), Update(0.9, true)}) {
    for (const int64_t n : {0, 1, 33, 70000}) {
      const auto want = ThreeSteps(test::Cpu(), kF64, n, update);
      for (const Isa isa : test::RunnableIsas()) {
        const auto got =
            ThreeSteps(test::ContextFor(isa, 1).cpu(), kF32, n, update);
        for (size_t i = 0; i < want.size(); ++i) {
          EXPECT_LE(test::RelativeError(got[i], want[i]), 1e-6) << n;
          for (const int threads : {2, 3, 7}) {
            EXPECT_TRUE(test::SameBits(
                got[i], ThreeSteps(test::ContextFor(isa, threads).cpu(), kF32,
                                   n, update)[i]));
          }
        }
      }
    }
  }
  EXPECT_EQ(test::CountRegions(DetectIsa(),
                               [](Device& device) {
                                 ThreeSteps(device, kF32, 70000,
                                            Update(0.9, true));
                               }),
            3);
}

TEST(SgdTest, Refusals) {
  const Tensor two = Tensor::Zeros(test::Cpu(), {2}, kF32);
  const Tensor three = Tensor::Zeros(test::Cpu(), {3}, kF32);
  const absl::Status shapes =
      internal::Guard([&] { Sgd(two, three, Tensor(), Update(0, false)); });
  EXPECT_THAT(shapes.message(), ::testing::HasSubstr("parameter is f32 [2]"));
  EXPECT_THAT(shapes.message(), ::testing::HasSubstr("gradient f32 [3]"));
  const absl::Status absent =
      internal::Guard([&] { Sgd(two, Tensor(), Tensor(), Update(0, false)); });
  EXPECT_THAT(absent.message(), ::testing::HasSubstr("gradient absent"));
  const absl::Status buffer =
      internal::Guard([&] { Sgd(two, two, Tensor(), Update(0.9, false)); });
  EXPECT_THAT(buffer.message(),
              ::testing::HasSubstr("momentum is 0.9, its buffer absent"));
}

}  // namespace
}  // namespace espalier
