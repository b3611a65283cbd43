#include "espalier/ops/reduce/norm.h"

#include <cmath>

#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

TEST(SumOfSquaresTest, MatchesPlainSumAtAnyThreadCount) {
  for (const int64_t n : {0, 1, 13, 32768, 100001}) {
    for (const DType dtype : {kF64, kF32, kBF16}) {
      const std::vector<double> values =
          ToDoubles(test::Normal({n}, 5).value());
      const double one = SumOfSquares(test::FromDoubles(
          test::ContextFor(DetectIsa(), 1).cpu(), {n}, dtype, values));
      double want = 0;
      for (const double v :
           ToDoubles(test::FromDoubles(test::Cpu(), {n}, dtype, values))) {
        want += v * v;
      }
      EXPECT_NEAR(one, want, 1e-10 * want);
      for (const int threads : {2, 3, 7}) {
        EXPECT_EQ(one, SumOfSquares(test::FromDoubles(
                           test::ContextFor(DetectIsa(), threads).cpu(), {n},
                           dtype, values)));
      }
    }
  }
  EXPECT_EQ(
      test::CountRegions(DetectIsa(),
                         [](Device& device) {
                           SumOfSquares(Tensor::Zeros(device, {100001}, kF32));
                         }),
      1);
}

TEST(SumOfSquaresTest, NanComesThrough) {
  EXPECT_TRUE(std::isnan(SumOfSquares(
      test::FromDoubles(test::Cpu(), {2}, kF32, {1, std::nan("")}))));
}

}  // namespace
}  // namespace espalier
