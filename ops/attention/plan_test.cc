#include "espalier/ops/attention/internal/plan.h"

#include <map>
#include <set>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/tests/support/env.h"

namespace espalier::attention {
namespace {

constexpr Sizes kSizes = {2000, 6, 2, 24, 40};
const std::vector<int32_t> kDocuments = {0, 0, 1, 700, 705, 2000, 2000};

TEST(AttentionPlanTest, BlocksStartAtTheirDocument) {
  const std::vector<Block> blocks = MakeBlocks({0, 0, 5, 7}, 3);
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0].begin, 0);
  EXPECT_EQ(blocks[0].end, 3);
  EXPECT_EQ(blocks[1].begin, 3);
  EXPECT_EQ(blocks[1].end, 5);
  EXPECT_EQ(blocks[1].doc_end, 5);
  EXPECT_EQ(blocks[2].begin, 5);
  EXPECT_EQ(blocks[2].doc_begin, 5);
  EXPECT_TRUE(MakeBlocks({0}, 3).empty());
}

// Whether any token of q sees any key of k.
bool Sees(const Mask& mask, const Block& q, const Block& k) {
  if (q.doc_begin != k.doc_begin) return false;
  for (int64_t t = q.begin; t < q.end; ++t) {
    if (mask.KeyBegin(t, q.doc_begin) < k.end &&
        mask.KeyEnd(t, q.doc_end) > k.begin) {
      return true;
    }
  }
  return false;
}

TEST(AttentionPlanTest, EveryVisiblePairOnceAndNoConflictInAStep) {
  for (const Mask& mask : {Mask{.causal = true}, Mask{.causal = false},
                           Mask{.causal = true, .window = 300},
                           Mask{.causal = false, .window = 100}}) {
    for (const Isa isa : test::RunnableIsas()) {
      const BackwardPlan plan =
          PlanBackward(kSizes, mask, kDocuments, kBF16, isa);
      std::set<std::pair<int32_t, int32_t>> seen;
      int64_t begin = 0;
      for (const int64_t end : plan.step_ends) {
        std::set<int32_t> queries, keys;
        for (int64_t i = begin; i < end; ++i) {
          const BlockPair pair = plan.pairs[static_cast<size_t>(i)];
          EXPECT_TRUE(queries.insert(pair.queries).second);
          EXPECT_TRUE(keys.insert(pair.keys).second);
          EXPECT_TRUE(seen.insert({pair.queries, pair.keys}).second);
          if (begin == 0) {
            EXPECT_EQ(pair.queries, pair.keys);
          }
        }
        if (begin == 0) {
          EXPECT_EQ(queries.size(), plan.blocks.size());
        }
        begin = end;
      }
      std::set<std::pair<int32_t, int32_t>> want;
      for (size_t q = 0; q < plan.blocks.size(); ++q) {
        for (size_t k = 0; k < plan.blocks.size(); ++k) {
          if (!Sees(mask, plan.blocks[q], plan.blocks[k])) continue;
          want.insert({static_cast<int32_t>(q), static_cast<int32_t>(k)});
        }
      }
      EXPECT_EQ(seen, want);
    }
  }
}

TEST(AttentionPlanTest, NoTokensNeedNoWork) {
  const Sizes sizes = {0, 2, 1, 8, 8};
  EXPECT_TRUE(PlanForward(sizes, {0}, kF32, BaselineIsa()).blocks.empty());
  EXPECT_TRUE(
      PlanBackward(sizes, Mask(), {0}, kF32, BaselineIsa()).step_ends.empty());
}

// Constant, whatever the number of tokens.
TEST(AttentionPlanTest, ScratchFitsTheCache) {
  for (const Isa isa : test::RunnableIsas()) {
    const Sizes sizes = {65536, 16, 4, 128, 128};
    const std::vector<int32_t> one = {0, 65536};
    EXPECT_LT(PlanForward(sizes, one, kBF16, isa).slot_bytes, 2 << 20);
    EXPECT_LT(PlanBackward(sizes, Mask(), one, kBF16, isa).slot_bytes, 2 << 20);
  }
}

}  // namespace
}  // namespace espalier::attention
