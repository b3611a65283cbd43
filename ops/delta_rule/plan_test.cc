#include "espalier/ops/delta_rule/internal/plan.h"

#include "gtest/gtest.h"

namespace espalier::delta_rule {
namespace {

const Sizes kSizes = {1000, 4, 2, 20, 128};

TEST(DeltaRulePlanTest, SavesAStateForEverySegmentButTheFirst) {
  const Plan plan = MakePlan(kSizes, {0, 256, 256, 513, 1000}, 64, kF32,
                             DetectIsa(), /*backward=*/false);
  ASSERT_EQ(plan.documents.size(), 4u);
  EXPECT_EQ(plan.num_states, 1 + 1);
  // Longest first.
  EXPECT_EQ(plan.documents[0].index, 3);
  EXPECT_EQ(plan.documents[0].first_state, 1);
  EXPECT_EQ(plan.documents[1].index, 2);
  EXPECT_EQ(plan.documents[1].first_state, 0);
  EXPECT_EQ(plan.documents[3].index, 1);
}

TEST(DeltaRulePlanTest, PanelsDivideTiles) {
  for (const DType dtype : {kF32, kBF16}) {
    for (const Isa isa : {Isa::kAvx2, DetectIsa()}) {
      for (const int64_t chunk : {16, 32, 64}) {
        const Plan plan =
            MakePlan(kSizes, {0, 1000}, chunk, dtype, isa, /*backward=*/true);
        EXPECT_EQ(kTileRows % plan.panel_rows, 0);
        EXPECT_LE(plan.panel_rows, plan.tile->rows[plan.panel_vectors]);
        EXPECT_EQ(plan.segment_chunks * plan.chunk, kSegment);
        EXPECT_EQ(plan.width, 32);
        EXPECT_EQ(plan.slot_bytes % 64, 0);
      }
    }
  }
}

}  // namespace
}  // namespace espalier::delta_rule
