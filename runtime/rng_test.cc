#include "espalier/runtime/rng.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/runtime/context.h"
#include "espalier/runtime/guard.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Context> MakeContext(int num_threads) {
  ContextOptions options;
  options.num_threads = num_threads;
  return *Context::Create(options);
}

// Known answers of philox4x32, 10 rounds, published with Random123.
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, 0),
            (RandomBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({~0u, ~0u, ~0u, ~0u}, ~uint64_t{0}),
            (RandomBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                   0x299f31d0a4093822u),
            (RandomBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RngTest, CounterAndStreamFillTheCounterWords) {
  const Rng rng{0x299f31d0a4093822u, 0x0370734413198a2eu};
  EXPECT_EQ(rng.Block(0x85a308d3243f6a88u),
            (RandomBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RngTest, NumbersAreWordsOfBlocks) {
  const Rng rng{7, 8};
  EXPECT_EQ(rng.Bits(6), rng.Block(1)[2]);
  EXPECT_EQ(rng.Float(6), static_cast<float>(rng.Block(1)[2] >> 8) / 16777216);
  EXPECT_EQ(rng.Double(5), UniformDouble(rng.Block(2)[2], rng.Block(2)[3]));
  EXPECT_EQ(rng.Normal(5), NormalPair(rng.Block(2))[1]);
}

TEST(RngTest, BatchesAreTheSameNumbers) {
  const Rng rng{0x299f31d0a4093822u, 0x0370734413198a2eu};
  for (uint64_t index : {uint64_t{0}, uint64_t{3}, uint64_t{1} << 31}) {
    uint32_t bits[Rng::kBatch];
    rng.BitsBatch(index, bits);
    for (uint64_t i = 0; i < Rng::kBatch; ++i) {
      EXPECT_EQ(bits[i], rng.Bits(index * Rng::kBatch + i));
    }
  }
}

TEST(RngTest, UniformsStayBelowOne) {
  EXPECT_EQ(UniformFloat(0), 0.0f);
  EXPECT_EQ(UniformFloat(~0u), 1.0f - 0x1p-24f);
  EXPECT_EQ(UniformDouble(0, 0), 0.0);
  EXPECT_EQ(UniformDouble(~0u, ~0u), 1.0 - 0x1p-53);
  EXPECT_EQ(UniformDouble(0, 1u << 31), 0.5);
}

// The exact formula in long double.
std::array<double, 2> NormalOracle(const RandomBlock& block) {
  const long double u = 1 - UniformDouble(block[0], block[1]);
  const long double v = UniformDouble(block[2], block[3]);
  const long double angle = 2 * 3.14159265358979323846264338327950288L * v;
  const long double radius = sqrtl(-2 * logl(u));
  return {static_cast<double>(radius * cosl(angle)),
          static_cast<double>(radius * sinl(angle))};
}

double NormalError(const RandomBlock& block) {
  const std::array<double, 2> got = NormalPair(block);
  const std::array<double, 2> want = NormalOracle(block);
  double error = 0;
  for (size_t i = 0; i < 2; ++i) {
    error = std::max(
        error, std::abs(got[i] - want[i]) / std::max(1.0, std::abs(want[i])));
  }
  return error;
}

TEST(RngTest, NormalsFollowTheFormula) {
  double worst = 0;
  for (uint64_t c = 0; c < 200'000; ++c) {
    worst = std::max(worst, NormalError(Rng{1, 2}.Block(c)));
  }
  // Corners: u = 1, u smallest, both sides of every eighth of a turn.
  for (uint32_t eighth = 0; eighth < 8; ++eighth) {
    for (uint32_t high :
         {eighth << 29, (eighth << 29) + 1, (eighth << 29) - 1}) {
      for (uint32_t u : {0u, 1u, ~0u, 0x4afb0ccdu}) {
        worst = std::max(worst, NormalError({u, u, high, high}));
      }
    }
  }
  EXPECT_LT(worst, 1e-15);
  EXPECT_EQ(NormalPair({0, 0, 5, 6})[0], 0.0);  // u = 1: no NaN
}

TEST(RngTest, NormalMomentsAndTails) {
  const Rng rng{3, 1};
  constexpr int kCount = 400'000;
  double sum = 0, squares = 0, cubes = 0, fourths = 0, neighbours = 0;
  double previous = 0;
  int beyond_two = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double x = rng.Normal(i);
    sum += x;
    squares += x * x;
    cubes += x * x * x;
    fourths += x * x * x * x;
    neighbours += x * previous;
    previous = x;
    beyond_two += std::abs(x) > 2;
  }
  // Five standard errors of each mean.
  const double e = 5 / std::sqrt(kCount);
  EXPECT_NEAR(sum / kCount, 0, e);
  EXPECT_NEAR(squares / kCount, 1, e * std::sqrt(2));
  EXPECT_NEAR(cubes / kCount, 0, e * std::sqrt(15));
  EXPECT_NEAR(fourths / kCount, 3, e * std::sqrt(96));
  EXPECT_NEAR(neighbours / kCount, 0, e);
  EXPECT_NEAR(beyond_two / double{kCount}, 0.0455003, e * 0.21);
}

// Chi-square of counts that should all be equal, as standard deviations from
// its mean (cells - 1).
double ChiSquareDeviation(const std::vector<int>& counts) {
  double total = 0;
  for (const int count : counts) total += count;
  const double expected = total / static_cast<double>(counts.size());
  double chi = 0;
  for (const int count : counts) {
    chi += (count - expected) * (count - expected) / expected;
  }
  const auto freedom = static_cast<double>(counts.size() - 1);
  return (chi - freedom) / std::sqrt(2 * freedom);
}

TEST(RngTest, UniformsFillCellsEvenly) {
  for (const Rng rng : {Rng{0, 0}, Rng{0, 1}, Rng{1, 0}}) {
    std::vector<int> singles(256), pairs(256);
    for (uint64_t i = 0; i < 100'000; ++i) {
      singles[static_cast<size_t>(rng.Float(i) * 256)]++;
      pairs[static_cast<size_t>(rng.Double(2 * i) * 16) * 16 +
            static_cast<size_t>(rng.Double(2 * i + 1) * 16)]++;
    }
    EXPECT_LT(std::abs(ChiSquareDeviation(singles)), 4);
    EXPECT_LT(std::abs(ChiSquareDeviation(pairs)), 4);
  }
}

TEST(RngTest, StreamsAndSeedsDiffer) {
  EXPECT_NE((Rng{1, 2}.Block(3)), (Rng{1, 3}.Block(3)));
  EXPECT_NE((Rng{1, 2}.Block(3)), (Rng{2, 2}.Block(3)));
  EXPECT_NE((Rng{1, 2}.Block(3)), (Rng{1, 2}.Block(4)));
  // FNV-1a of "" and "a" (Fowler, Noll, Vo).
  EXPECT_EQ(StreamOf(""), 0xcbf29ce484222325u);
  EXPECT_EQ(StreamOf("a"), 0xaf63dc4c8601ec8cu);
}

TEST(RandomSequenceTest, BelowABoundWithoutBias) {
  RandomSequence sequence(Rng{5, 0});
  // A remainder would favour the lower half of this range, a product without
  // the second draw its multiples of three.
  constexpr uint64_t kBound = uint64_t{3} << 62;
  std::vector<int> halves(2), residues(3);
  for (int i = 0; i < 30'000; ++i) {
    const uint64_t x = sequence.NextBelow(kBound);
    ASSERT_LT(x, kBound);
    halves[x < kBound / 2 ? 0 : 1]++;
    residues[x % 3]++;
  }
  EXPECT_LT(ChiSquareDeviation(halves), 4);
  EXPECT_LT(ChiSquareDeviation(residues), 4);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(sequence.NextBelow(1), 0u);
  EXPECT_THAT(internal::Guard([&] { sequence.NextBelow(0); }).message(),
              HasSubstr("below 0"));
}

TEST(RandomPermutationTest, HoldsEachNumberOnce) {
  for (int64_t n : {0, 1, 2, 3, 1000}) {
    std::vector<int64_t> order = RandomPermutation(Rng{9, 9}, n);
    EXPECT_EQ(order, RandomPermutation(Rng{9, 9}, n));
    if (n == 1000) {
      EXPECT_NE(order, RandomPermutation(Rng{9, 10}, n));
    }
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
    EXPECT_EQ(static_cast<int64_t>(order.size()), n);
  }
  EXPECT_FALSE(internal::Guard([] { RandomPermutation(Rng{}, -1); }).ok());
}

TEST(RandomPermutationTest, AllOrdersAreEquallyLikely) {
  std::vector<int> counts(24);
  for (uint64_t stream = 0; stream < 24'000; ++stream) {
    const std::vector<int64_t> p = RandomPermutation(Rng{4, stream}, 4);
    int64_t rank = 0;  // in lexical order
    for (size_t i = 0; i < 4; ++i) {
      rank = rank * static_cast<int64_t>(4 - i) +
             std::count_if(p.begin() + static_cast<std::ptrdiff_t>(i), p.end(),
                           [&](int64_t x) { return x < p[i]; });
    }
    counts[static_cast<size_t>(rank)]++;
  }
  EXPECT_LT(std::abs(ChiSquareDeviation(counts)), 4);
}

class FillTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Floats, FillTest,
                         ::testing::Values(kF64, kF32, kBF16, kF16));

std::vector<double> Filled(int num_threads, DType dtype, int64_t n,
                           bool normal) {
  auto context = MakeContext(num_threads);
  const Tensor tensor = Tensor::Empty(context->cpu(), {n}, dtype);
  std::memset(tensor.view().pointer, 0xff,
              static_cast<size_t>(tensor.num_bytes()));
  if (normal) {
    FillNormal(tensor, Rng{11, 12}, 0.5, 2.0);
  } else {
    FillUniform(tensor, Rng{11, 12}, -3.0, 1.0);
  }
  return ToDoubles(tensor);
}

double Rounded(double value, DType dtype) {
  switch (dtype) {
    case kF64:
      return value;
    case kBF16:
      return BFloat16(value);
    case kF16:
      return Float16(value);
    default:
      return static_cast<float>(value);
  }
}

TEST_P(FillTest, ElementsAreNumbersOfTheStream) {
  const Rng rng{11, 12};
  for (int64_t n : {0, 1, 2, 3, 5, 1003}) {
    const std::vector<double> uniform = Filled(1, GetParam(), n, false);
    const std::vector<double> normal = Filled(1, GetParam(), n, true);
    for (uint64_t i = 0; i < static_cast<uint64_t>(n); ++i) {
      const double u = GetParam() == kF64 ? -3.0 + 4.0 * rng.Double(i)
                                          : -3.0f + 4.0f * rng.Float(i);
      EXPECT_EQ(uniform[i], Rounded(u, GetParam()));
      EXPECT_EQ(normal[i], Rounded(0.5 + 2.0 * rng.Normal(i), GetParam()));
    }
  }
}

TEST_P(FillTest, SameBitsAtAnyThreadCount) {
  constexpr int64_t kCount = 100'003;
  for (bool normal : {false, true}) {
    const std::vector<double> expected = Filled(1, GetParam(), kCount, normal);
    for (int num_threads : {2, 3, 7}) {
      EXPECT_EQ(Filled(num_threads, GetParam(), kCount, normal), expected);
    }
  }
}

TEST(FillCheckTest, Refusals) {
  auto context = MakeContext(1);
  const Tensor matrix = Tensor::Empty(context->cpu(), {3, 5}, kF32);
  const auto message = [](auto fill) {
    return std::string(internal::Guard(fill).message());
  };
  EXPECT_THAT(
      message([&] { FillUniform(matrix.Transpose(0, 1), Rng{}, 0, 1); }),
      HasSubstr("strided view of f32 [5, 3] on cpu"));
  EXPECT_THAT(message([&] { FillUniform(matrix, Rng{}, 1, 0); }),
              HasSubstr("uniform between 1 and 0"));
  EXPECT_THAT(message([&] { FillNormal(matrix, Rng{}, 0, -1); }),
              HasSubstr("deviation -1"));
  const Tensor integers = Tensor::Empty(context->cpu(), {2}, kI32);
  EXPECT_THAT(message([&] { FillNormal(integers, Rng{}, 0, 1); }),
              HasSubstr("fill_normal: no kernel for i32 [2] on cpu"));
  FillNormal(Tensor::Empty(context->meta(), {2, 3}, kF32), Rng{}, 0, 1);
}

}  // namespace
}  // namespace espalier
