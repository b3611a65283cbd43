#include "espalier/ops/dropout/dropout.h"

#include <cmath>

#include "espalier/runtime/guard.h"
#include "espalier/tests/support/compare.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

constexpr double kRate = 0.3;

Variable Drop(const std::vector<Variable>& in) {
  autograd::RngStream stream(Rng{7, 11}, /*position=*/512);
  return Dropout(in[0], kRate, stream);
}

class DropoutTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, DropoutTest,
                         ::testing::ValuesIn(test::Targets(1e-6, 1e-2)),
                         ::testing::PrintToStringParamName());

// The mask of the f64 reference comes number by number from Rng::Bits.
TEST_P(DropoutTest, MatchesF64Reference) {
  for (const Shape& x : {Shape{0, 8}, Shape{1, 1}, Shape{3, 7}, Shape{2, 3, 33},
                         Shape{130, 24}}) {
    EXPECT_TRUE(test::MatchesReference(Drop, GetParam(), {x})) << ToString(x);
  }
}

// Counters of more than 32 bits, a stream and a seed of 64.
TEST_P(DropoutTest, MatchesFarInALongStream) {
  const auto drop = [](const std::vector<Variable>& in) {
    autograd::RngStream stream(Rng{0x123456789abcdef1u, 0xfedcba9876543210u},
                               (uint64_t{1} << 34) - 512);
    return Dropout(in[0], kRate, stream);
  };
  EXPECT_TRUE(test::MatchesReference(drop, GetParam(), {{3, 700}}));
}

TEST_P(DropoutTest, SameBitsForAllThreads) {
  EXPECT_TRUE(test::SameBitsForAllThreads(Drop, GetParam(), {{1201, 131}}));
}

TEST_P(DropoutTest, SameBitsWhenRecomputed) {
  EXPECT_TRUE(test::SameBitsWhenRecomputed(Drop, GetParam(), {{13, 37}}));
}

TEST(DropoutGradTest, MatchesCentralDifferenceInF64) {
  EXPECT_TRUE(test::GradCheck(Drop, {test::Normal({3, 7}, 1)}));
  EXPECT_FALSE(Drop({test::Frozen(test::Normal({3, 7}, 1))}).needs_grad());
}

TEST(DropoutValueTest, DropsTheRateAndKeepsTheMean) {
  const int64_t n = 200000;
  const Variable x(test::FromDoubles(test::Cpu(), {n}, kF32,
                                     std::vector<double>(size_t(n), 1.0)));
  const std::vector<double> y = ToDoubles(Drop({x}).value());
  int64_t num_dropped = 0;
  for (const double value : y) {
    num_dropped += value == 0;
    if (value != 0) {
      EXPECT_FLOAT_EQ(static_cast<float>(value), 1 / 0.7f);
    }
  }
  // Four standard deviations.
  EXPECT_NEAR(static_cast<double>(num_dropped), kRate * n,
              4 * std::sqrt(n * kRate * (1 - kRate)));
}

TEST(DropoutValueTest, EachCallTakesOtherNumbersAndRateZeroNone) {
  const Variable x = test::Normal({300}, 1);
  autograd::RngStream stream(Rng{7, 11});
  const Tensor first = Dropout(x, kRate, stream).value();
  EXPECT_EQ(stream.position(), 512u);
  EXPECT_FALSE(test::SameBits(first, Dropout(x, kRate, stream).value()));
  stream.set_position(0);
  EXPECT_TRUE(test::SameBits(first, Dropout(x, kRate, stream).value()));
  EXPECT_TRUE(Dropout(x, 0, stream).value().SharesStorage(x.value()));
  EXPECT_EQ(stream.position(), 512u);
}

TEST(DropoutCheckTest, NamesTheRate) {
  autograd::RngStream stream(Rng{7, 11});
  for (const double rate : {-0.1, 1.0}) {
    const absl::Status s =
        internal::Guard([&] { Dropout(test::Normal({2}, 1), rate, stream); });
    EXPECT_THAT(s.message(), ::testing::HasSubstr("dropout rate is"));
  }
}

}  // namespace
}  // namespace espalier
