#include "espalier/ops/gemm/plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "espalier/runtime/cpu_features.h"

namespace espalier::gemm {
namespace {

TEST(SplitKTest, CutsEvenly) {
  EXPECT_EQ(SplitK(576, Compute::kF32).k_block, 288);
  EXPECT_EQ(SplitK(576, Compute::kBF16).k_block, 576);
  EXPECT_EQ(SplitK(4096, Compute::kF32).num_k_blocks, 8);
  EXPECT_EQ(SplitK(4096, Compute::kBF16).num_k_blocks, 4);
  EXPECT_EQ(SplitK(0, Compute::kF32).num_k_blocks, 1);
}

TEST(SplitKTest, CoversKWithFullBlocksButTheLast) {
  for (int64_t k = 1; k < 5000; k += 37) {
    for (Compute compute : {Compute::kF32, Compute::kBF16}) {
      const KSplit split = SplitK(k, compute);
      EXPECT_EQ(split.k_block % 32, 0);
      EXPECT_GE(split.k_block * split.num_k_blocks, k);
      EXPECT_LT(split.k_block * (split.num_k_blocks - 1), k);
    }
  }
}

TEST(MakePlanTest, PiecesAreTilesAndFitTheirBlocks) {
  const Tile& tile = FindTile(DetectIsa(), Compute::kBF16);
  for (int64_t m : {1, 5, 13, 16, 100, 512, 4096}) {
    for (int64_t n : {1, 16, 50, 1536, 4096}) {
      const Plan plan = MakePlan({.m = m, .n = n, .k = 700}, tile);
      EXPECT_LE(plan.tile_rows, tile.rows[plan.tile_vectors]);
      EXPECT_EQ(plan.m_block % plan.tile_rows, 0);
      EXPECT_EQ(plan.m_task % plan.tile_rows, 0);
      const int64_t tile_columns = int64_t{plan.tile_vectors} * kLanes;
      EXPECT_EQ(plan.n_block % tile_columns, 0);
      EXPECT_EQ(plan.n_task % tile_columns, 0);
      EXPECT_EQ(plan.a_bytes % 64, 0);
      EXPECT_EQ(plan.b_bytes % 64, 0);
    }
  }
}

TEST(MakePlanTest, AsksOnlyForTheWorkspaceInUse) {
  const Tile& tile = FindTile(DetectIsa(), Compute::kBF16);
  const PlanInput dense = {.m = 64, .n = 96, .k = 5000};
  PlanInput input = dense;
  EXPECT_EQ(MakePlan(input, tile).partial_bytes, 0);
  input.needs_partial = true;
  EXPECT_EQ(MakePlan(input, tile).partial_bytes, 64 * 96 * 4);
  input.pack_b = false;
  EXPECT_EQ(MakePlan(input, tile).b_bytes, 0);
  input.k = 100;  // one block of K: nothing to carry
  EXPECT_EQ(MakePlan(input, tile).partial_bytes, 0);
}

// Every instruction set, both computes, B in all its forms.
template <typename Fn>
void ForEachTileAndForm(const Fn& fn) {
  for (const Isa isa : {BaselineIsa(), DetectIsa()}) {
    for (const Compute compute : {Compute::kF32, Compute::kBF16}) {
      for (const bool partial : {false, true}) {
        PlanInput input = {.needs_partial = partial};
        fn(input, FindTile(isa, compute));
        input.rows_of_b = true;
        fn(input, FindTile(isa, compute));
        input.rows_of_b = input.pack_b = false;
        fn(input, FindTile(isa, compute));
      }
    }
  }
}

TEST(MakePlanTest, KnowsTheMostBytesUpToEveryM) {
  ForEachTileAndForm([](PlanInput input, const Tile& tile) {
    for (const int64_t n : {1, 97, 2500}) {
      for (const int64_t k : {5, 700, 2100}) {
        input.n = n;
        input.k = k;
        int64_t most = 0;
        for (input.m = 1; input.m <= 3300; ++input.m) {
          most = std::max(most, MakePlan(input, tile).workspace_bytes());
          ASSERT_EQ(MostBytesUpToM(input, tile), most)
              << input.m << "x" << n << "x" << k << " "
              << ToString(MakePlan(input, tile));
        }
      }
    }
  });
}

TEST(MakePlanTest, KnowsTheMostBytesUpToEveryK) {
  ForEachTileAndForm([](PlanInput input, const Tile& tile) {
    for (const int64_t m : {1, 30, 700}) {
      input.m = m;
      input.n = 2500;
      int64_t most = 0;
      for (input.k = 1; input.k <= 3300; ++input.k) {
        most = std::max(most, MakePlan(input, tile).workspace_bytes());
        ASSERT_EQ(MostBytesUpToK(input, tile), most)
            << m << "x" << input.n << "x" << input.k << " "
            << ToString(MakePlan(input, tile));
      }
    }
  });
}

TEST(MakePlanTest, PrintsItself) {
  const Tile& tile = FindTile(BaselineIsa(), Compute::kF32);
  EXPECT_EQ(ToString(MakePlan({.m = 12, .n = 32, .k = 64}, tile)),
            "k 1x64 tile 6x16 block 12x64 task 12x64 workspace 12288 B");
}

}  // namespace
}  // namespace espalier::gemm
