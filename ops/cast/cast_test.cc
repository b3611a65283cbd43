#include "espalier/ops/cast/cast.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "espalier/autograd/backward.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/compare.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

TEST(CastTest, EveryPairEqualsRoundingElementByElement) {
  for (const int64_t n : {0, 1, 17, 40000}) {
    const std::vector<double> values = ToDoubles(test::Normal({n}, 3).value());
    for (const Isa isa : test::RunnableIsas()) {
      for (const int threads : {1, 2, 3, 7}) {
        Device& device = test::ContextFor(isa, threads).cpu();
        for (const DType from : {kF64, kF32, kBF16, kF16}) {
          const Tensor x = test::FromDoubles(device, {n}, from, values);
          for (const DType to : {kF64, kF32, kBF16, kF16}) {
            EXPECT_TRUE(test::SameBits(
                Cast(x, to), test::FromDoubles(device, {n}, to, ToDoubles(x))))
                << ToString(from) << " to " << ToString(to);
          }
        }
      }
    }
  }
  EXPECT_EQ(test::CountRegions(DetectIsa(),
                               [](Device& device) {
                                 Cast(Tensor::Zeros(device, {40000}, kF32),
                                      kBF16);
                               }),
            1);
}

TEST(CastTest, InfinityAndNanSurvive) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Isa isa : test::RunnableIsas()) {
    Device& device = test::ContextFor(isa, 1).cpu();
    const Tensor x = test::FromDoubles(device, {3}, kF32,
                                       {infinity, -infinity, std::nan("")});
    const std::vector<double> y = ToDoubles(Cast(x, kBF16));
    EXPECT_EQ(y[0], infinity);
    EXPECT_EQ(y[1], -infinity);
    EXPECT_TRUE(std::isnan(y[2]));
  }
}

TEST(CastTest, GradientIsCastBackAndSameDtypeIsTheSame) {
  const Variable x(test::FromDoubles(test::Cpu(), {2}, kF32, {1, 2}),
                   /*needs_grad=*/true);
  const Variable y = Cast(x, kBF16);
  autograd::Backward(y, test::FromDoubles(test::Cpu(), {2}, kBF16, {3, -0.5}));
  EXPECT_TRUE(test::SameBits(
      x.grad(), test::FromDoubles(test::Cpu(), {2}, kF32, {3, -0.5})));
  EXPECT_TRUE(Cast(x, kF32).value().SharesStorage(x.value()));
}

// Around 0, where the step itself survives the rounding; the tolerance is that
// of the step in the narrow dtype (a subnormal number in f16).
TEST(CastTest, GradientMatchesCentralDifferenceInF64) {
  const std::vector<std::pair<DType, double>> cases = {
      {kF32, 1e-6}, {kBF16, 4e-3}, {kF16, 5e-2}};
  for (const auto& [dtype, rtol] : cases) {
    const auto there = [to = dtype](const std::vector<Variable>& in) {
      return Cast(in[0], to);
    };
    const auto there_and_back = [to = dtype](const std::vector<Variable>& in) {
      return Cast(Cast(in[0], to), kF64);
    };
    const Variable zero(Tensor::Zeros(test::Cpu(), {3, 7}, kF64),
                        /*needs_grad=*/true);
    EXPECT_TRUE(test::GradCheck(there, {zero}, rtol)) << ToString(dtype);
    EXPECT_TRUE(test::GradCheck(there_and_back, {zero}, 2 * rtol))
        << ToString(dtype);
    EXPECT_FALSE(there({test::Frozen(zero)}).needs_grad());
  }
}

TEST(CastTest, WiderResultIsMadeAgain) {
  for (const test::Target& target : test::Targets()) {
    const DType wider = target.dtype == kBF16 ? kF32 : kF64;
    EXPECT_TRUE(test::SameBitsWhenRecomputed(
        [wider](const std::vector<Variable>& in) { return Cast(in[0], wider); },
        target, {{5, 7}}));
  }
}

TEST(CastTest, RefusesIntegers) {
  const Tensor x = Tensor::Zeros(test::Cpu(), {2}, kI32);
  EXPECT_EQ(internal::Guard([&] { Cast(x, kF32); }).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(internal::Guard([&] {
              Cast(Tensor::Zeros(test::Cpu(), {2}, kF32), kI32);
            }).code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace espalier
