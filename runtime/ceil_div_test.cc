#include "espalier/runtime/ceil_div.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace espalier {
namespace {

TEST(CeilDivTest, CountsThePartsThatCover) {
  EXPECT_EQ(CeilDiv(0, 16), 0);
  EXPECT_EQ(CeilDiv(1, 16), 1);
  EXPECT_EQ(CeilDiv(16, 16), 1);
  EXPECT_EQ(CeilDiv(17, 16), 2);
  EXPECT_EQ(CeilDiv(7, 1), 7);
}

// Sizes come from files: a + b - 1 would overflow.
TEST(CeilDivTest, TakesTheLargestNumbers) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  static_assert(CeilDiv(kMost, 16) == kMost / 16 + 1);
  EXPECT_EQ(CeilDiv(kMost, kMost), 1);
  EXPECT_EQ(CeilDiv(kMost - 1, kMost), 1);
}

TEST(RoundUpTest, GivesTheNextMultiple) {
  EXPECT_EQ(RoundUp(0, 16), 0);
  EXPECT_EQ(RoundUp(1, 16), 16);
  EXPECT_EQ(RoundUp(16, 16), 16);
  EXPECT_EQ(RoundUp(17, 12), 24);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(RoundUp(kMost - 1, kMost), kMost);
}

}  // namespace
}  // namespace espalier
