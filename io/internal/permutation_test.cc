#include "espalier/io/internal/permutation.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace espalier::internal {
namespace {

TEST(PermutationTest, HoldsEachNumberOnce) {
  for (const int64_t n :
       {int64_t{1}, int64_t{2}, int64_t{7}, Permutation::kTableSize,
        Permutation::kTableSize + 1, Permutation::kTableSize * 3 + 5}) {
    const Permutation order({3, 9}, n);
    std::vector<bool> seen(static_cast<size_t>(n), false);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = order.At(i);
      ASSERT_TRUE(at >= 0 && at < n);
      ASSERT_FALSE(seen[static_cast<size_t>(at)]) << "n " << n << " i " << i;
      seen[static_cast<size_t>(at)] = true;
    }
  }
}

TEST(PermutationTest, OtherStreamsAreOtherOrders) {
  const int64_t n = Permutation::kTableSize + 77;
  const Permutation a({1, 0}, n), b({1, 1}, n), c({2, 0}, n), again({1, 0}, n);
  int64_t same_b = 0, same_c = 0, fixed = 0;
  double rank = 0;
  constexpr int64_t kDraws = 4096;
  for (int64_t i = 0; i < kDraws; ++i) {
    ASSERT_EQ(a.At(i), again.At(i));
    same_b += a.At(i) == b.At(i);
    same_c += a.At(i) == c.At(i);
    fixed += a.At(i) == i;
    rank += static_cast<double>(a.At(i)) / static_cast<double>(n);
  }
  EXPECT_LE(std::max({same_b, same_c, fixed}), 2);
  // Mean of 4096 uniform numbers: six standard deviations are 0.027.
  EXPECT_LT(std::abs(rank / kDraws - 0.5), 0.027);
}

}  // namespace
}  // namespace espalier::internal
