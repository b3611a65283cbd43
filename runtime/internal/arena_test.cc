#include "espalier/runtime/internal/arena.h"

#include <optional>
#include <vector>

#include "gtest/gtest.h"

#include "espalier/runtime/internal/block_size.h"

namespace espalier::internal {

namespace {

constexpr int64_t kChunk = kRangeAlignment;

// Addresses alone; counts what is committed and refuses above limits.
class CountingSource final : public MemorySource {
 public:
  int64_t RangeBytes(int64_t) const override { return range_bytes_; }
  char* Reserve(int64_t bytes) override {
    if (bytes > address_space_) return nullptr;
    address_space_ -= bytes;
    // A gap, so that ranges never touch by chance.
    next_ += bytes + kRangeAlignment;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): addresses without memory
    return reinterpret_cast<char*>(next_ - bytes - kRangeAlignment);
  }
  void Unreserve(char*, int64_t, int64_t) override {}
  bool Commit(char* data, int64_t bytes) override {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % kChunk, 0u);
    if (committed_ + bytes > limit_) return false;
    committed_ += bytes;
    return true;
  }
  void Decommit(char*, int64_t bytes) override { committed_ -= bytes; }

  int64_t range_bytes_ = 1024 * kChunk;
  int64_t address_space_ = int64_t{1} << 50;
  int64_t limit_ = INT64_MAX;
  int64_t committed_ = 0;

 private:
  int64_t next_ = int64_t{1} << 60;
};

char* Take(Arena& arena, int64_t bytes) {
  if (char* data = arena.TakeWarm(bytes)) return data;
  const auto place = arena.FindPlace(bytes);
  return place ? arena.TakePlace(*place, bytes) : nullptr;
}

TEST(BlockSizeTest, CoversTightlyAndKeepsItsClasses) {
  int last_class = -1;
  int64_t last_block = 0;
  for (int64_t bytes = 0; bytes <= 3 * kSmallBytes; ++bytes) {
    const int64_t block = BlockBytes(bytes);
    ASSERT_GE(block, bytes);
    ASSERT_EQ(block % kBlockAlignment, 0);
    ASSERT_LE(block, bytes + std::max(bytes / 8, int64_t{64})) << bytes;
    ASSERT_EQ(BlockBytes(block), block);
    ASSERT_GE(block, last_block);
    if (block <= kSmallBytes) {
      ASSERT_EQ(SizeClass(block), last_class + (block > last_block ? 1 : 0));
      last_class = SizeClass(block);
    }
    last_block = block;
  }
  EXPECT_EQ(last_class, kNumSizeClasses - 1);
  EXPECT_EQ(BlockBytes(kMaxBlockBytes - 1), kMaxBlockBytes);
}

TEST(ArenaTest, TakesTheSmallestHoleThatFits) {
  CountingSource source;
  Arena arena(source, kChunk);
  std::vector<char*> blocks;
  for (const int64_t bytes : {640, 64, 1280, 64, 960, 64, 1280, 64}) {
    blocks.push_back(Take(arena, bytes));
  }
  arena.Give(blocks[0]);  // 640
  arena.Give(blocks[2]);  // 1280
  arena.Give(blocks[4]);  // 960
  arena.Give(blocks[6]);  // 1280
  EXPECT_EQ(Take(arena, 704), blocks[4]);
  EXPECT_EQ(Take(arena, 1024), blocks[2]);        // lowest of two
  EXPECT_EQ(Take(arena, 256), blocks[2] + 1024);  // what was split off
  EXPECT_EQ(Take(arena, 256), blocks[4] + 704);
  EXPECT_EQ(source.committed_, kChunk);
}

TEST(ArenaTest, MergesWithBothNeighbours) {
  CountingSource source;
  Arena arena(source, kChunk);
  char* const a = Take(arena, kChunk / 2);
  char* const b = Take(arena, kChunk / 2);
  char* const c = Take(arena, kChunk);
  char* const d = Take(arena, kChunk);
  EXPECT_EQ(arena.LargestFreeBytes(), 0);
  arena.Give(a);
  arena.Give(c);
  EXPECT_EQ(arena.LargestFreeBytes(), kChunk);
  arena.Give(b);
  EXPECT_EQ(arena.LargestFreeBytes(), 2 * kChunk);
  EXPECT_EQ(Take(arena, 2 * kChunk), a);
  EXPECT_EQ(source.committed_, 3 * kChunk);
  arena.Give(d);
}

TEST(ArenaTest, GrowsByWhatTheFreeTailLacks) {
  CountingSource source;
  Arena arena(source, kChunk);
  char* const first = Take(arena, 3 * kChunk);
  char* const last = Take(arena, 2 * kChunk);
  arena.Give(last);
  EXPECT_EQ(Take(arena, 3 * kChunk), first + 3 * kChunk);
  EXPECT_EQ(source.committed_, 6 * kChunk);
  EXPECT_EQ(arena.committed_bytes(), 6 * kChunk);
}

TEST(ArenaTest, ReleaseTakesWholeChunksOfHolesAndTheyComeBack) {
  CountingSource source;
  Arena arena(source, kChunk);
  char* const low = Take(arena, kChunk / 2);
  char* const hole = Take(arena, 4 * kChunk);
  char* const high = Take(arena, kChunk / 2);
  ASSERT_EQ(source.committed_, 5 * kChunk);
  arena.Give(hole);
  EXPECT_EQ(arena.Release(INT64_MAX, hole + kChunk), 0);  // spared
  EXPECT_EQ(arena.Release(1, nullptr), kChunk);
  EXPECT_EQ(arena.Release(INT64_MAX, nullptr), 2 * kChunk);
  EXPECT_EQ(source.committed_, 2 * kChunk);
  EXPECT_EQ(arena.LargestFreeBytes(), kChunk / 2);
  // The half chunks at its edges have memory still.
  EXPECT_EQ(Take(arena, kChunk / 2), hole);
  char* const end = Take(arena, kChunk / 2);
  EXPECT_EQ(end + kChunk / 2, high);
  EXPECT_EQ(source.committed_, 2 * kChunk);
  EXPECT_EQ(Take(arena, 3 * kChunk), hole + kChunk / 2);
  EXPECT_EQ(source.committed_, 5 * kChunk);
  arena.Give(low);
}

TEST(ArenaTest, RefusedMemoryLeavesTheBlocksAsTheyWere) {
  CountingSource source;
  source.limit_ = 4 * kChunk;
  Arena arena(source, kChunk);
  char* const first = Take(arena, 3 * kChunk);
  EXPECT_EQ(Take(arena, 2 * kChunk), nullptr);
  EXPECT_EQ(Take(arena, kChunk), first + 3 * kChunk);
  arena.Give(first);
  EXPECT_EQ(Take(arena, 3 * kChunk), first);
}

TEST(ArenaTest, TakesShorterRangesWhereAddressSpaceIsShort) {
  CountingSource source;
  source.address_space_ = 16 * kChunk;
  Arena arena(source, kChunk);
  EXPECT_NE(Take(arena, 10 * kChunk), nullptr);
  EXPECT_EQ(Take(arena, 8 * kChunk), nullptr);
  EXPECT_NE(Take(arena, 6 * kChunk), nullptr);
}

TEST(ArenaTest, NeverMergesRanges) {
  CountingSource source;
  source.range_bytes_ = 2 * kChunk;
  Arena arena(source, kChunk);
  char* const a = Take(arena, 2 * kChunk);
  char* const b = Take(arena, 2 * kChunk);
  arena.Give(a);
  arena.Give(b);
  EXPECT_EQ(arena.LargestFreeBytes(), 2 * kChunk);
}

}  // namespace

}  // namespace espalier::internal
