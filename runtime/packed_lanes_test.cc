#include "espalier/runtime/packed_lanes.h"

#include <cstdint>
#include <set>

#include "gtest/gtest.h"

namespace espalier {
namespace {

// 100 features are 7 strips: panels of 3, 3 and 1.
TEST(PackedLanesTest, PanelsAreOneStreamEach) {
  const StripLines middle = LinesOf(100, /*strip=*/4, /*num_units=*/5);
  EXPECT_EQ(middle.first, 3 * 5 + 1);
  EXPECT_EQ(middle.width, 3);
  const StripLines last = LinesOf(100, 6, 5);
  EXPECT_EQ(last.first, 6 * 5);
  EXPECT_EQ(last.width, 1);
  std::set<int64_t> lines;
  for (int64_t strip = 0; strip < 7; ++strip) {
    const StripLines at = LinesOf(100, strip, 5);
    for (int64_t unit = 0; unit < 5; ++unit) {
      lines.insert(at.first + unit * at.width);
    }
  }
  EXPECT_EQ(lines.size(), 35u);
  EXPECT_EQ(*lines.rbegin(), 34);
}

// One unpack of low and high bytes gives four lanes of pairs of columns.
TEST(PackedLanesTest, BytesStandByPairsOfColumns) {
  EXPECT_EQ(LaneByte(0, 1), 1);
  EXPECT_EQ(LaneByte(1, 0), 2);
  EXPECT_EQ(LaneByte(0, 2), 8);
  EXPECT_EQ(LaneByte(4, 0), 16);
  std::set<int64_t> bytes;
  for (int64_t lane = 0; lane < 16; ++lane) {
    for (int64_t i = 0; i < 4; ++i) bytes.insert(LaneByte(lane, i));
  }
  EXPECT_EQ(bytes.size(), 64u);
  EXPECT_EQ(*bytes.rbegin(), 63);
}

TEST(PackedLanesTest, Int4IsSignAndMagnitude) {
  // Lane codes 0 to 7 are themselves, 8 is -8, 9 to 15 are -1 to -7.
  for (int lane = 0; lane < 16; ++lane) {
    const int value = lane < 8 ? lane : lane == 8 ? -8 : 8 - lane;
    const auto code = static_cast<uint32_t>(value + 8);
    EXPECT_EQ(Int4ToLane(code), lane);
    EXPECT_EQ(Int4FromLane(static_cast<uint32_t>(lane)), code);
  }
}

TEST(PackedLanesTest, Mxfp4SplitsEvenFromOddColumns) {
  EXPECT_EQ(SplitNibbles(0x76543210u), 0x75316420u);
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(0x75316420u >> LaneShift(i) & 15, i);
  }
}

}  // namespace
}  // namespace espalier
