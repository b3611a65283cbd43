#include "espalier/ops/gemm/plan.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/str_cat.h"

#include "espalier/runtime/ceil_div.h"

namespace espalier::gemm {
namespace {

// Measured on AMD Zen 4 and Zen 5 (docs/adr/0003-gemm-core.md). The sizes of
// the caches are not asked for: guests report none.
constexpr int64_t kKBlockWords = 512;
constexpr int64_t kMBlock = 1024;
constexpr int64_t kNBlock = 2048;
constexpr int64_t kMTask = 252;  // of packed A, resident in L2
constexpr int64_t kNTask = 128;
constexpr int64_t kKAlign = 32;
constexpr int64_t kUnpackedTask = 64;
// Up to here packing B shows, and A and a strip of B fit in L2 and L3.
constexpr int64_t kFusedRows = 512;
constexpr int64_t kFusedTask = 64;  // columns: one group of panels
// Few rows take wide, low tiles: less of the tile is waste.
constexpr int64_t kLowRows = 48;
constexpr int64_t kLowestRows = 6;
// Up to so many panels of rows are made even; with more, a short last panel
// costs less than rows left empty in all of them.
constexpr int64_t kEvenPanels = 4;

// The size, a multiple of `unit`, of even pieces of at most `most`.
int64_t EvenPiece(int64_t size, int64_t most, int64_t unit) {
  const int64_t pieces = std::max<int64_t>(1, CeilDiv(size, most));
  return std::max(unit, RoundUp(CeilDiv(size, pieces), unit));
}

void SetTile(int64_t m, const Tile& tile, Plan& plan) {
  plan.tile_vectors = std::min(2, tile.max_vectors);
  // 48 columns would leave a rest in every fused task.
  if (m <= kLowRows && !plan.fused_b) {
    plan.tile_vectors = std::min(3, tile.max_vectors);
  }
  if (m <= kLowestRows) plan.tile_vectors = tile.max_vectors;
  plan.tile_rows = tile.rows[plan.tile_vectors];
  if (m <= kEvenPanels * plan.tile_rows) {
    plan.tile_rows =
        static_cast<int>(EvenPiece(std::max<int64_t>(1, m), plan.tile_rows, 1));
  }
}

int64_t MostKBlock(Compute compute) {
  return compute == Compute::kBF16 ? 2 * kKBlockWords : kKBlockWords;
}

// The most workspace of `input` with `size` at one of `sizes` that is no larger
// than what it is.
int64_t MostBytes(const PlanInput& input, int64_t PlanInput::*size,
                  std::initializer_list<int64_t> sizes, const Tile& tile) {
  int64_t bytes = 0;
  for (const int64_t at : sizes) {
    if (at > input.*size) continue;
    PlanInput one = input;
    one.*size = at;
    bytes = std::max(bytes, MakePlan(one, tile).workspace_bytes());
  }
  return bytes;
}

void SetUnpacked(const PlanInput& input, const Tile& tile, Plan& plan) {
  plan.unpacked_b = true;
  plan.tile_rows = static_cast<int>(std::max<int64_t>(1, input.m));
  plan.m_block = plan.m_task = plan.tile_rows;
  plan.n_block = RoundUp(input.n, kLanes);
  plan.n_task = kUnpackedTask;
  plan.a_bytes = RoundUp(tile.words(input.k) * tile.a_pitch * 4, 64);
  if (input.needs_partial && plan.num_k_blocks > 1) {
    plan.partial_bytes = input.m * plan.n_block * 4;
  }
}

}  // namespace

KSplit SplitK(int64_t k, Compute compute) {
  const int64_t block = EvenPiece(k, MostKBlock(compute), kKAlign);
  return {block, std::max<int64_t>(1, CeilDiv(k, block))};
}

Plan MakePlan(const PlanInput& input, const Tile& tile) {
  Plan plan;
  const KSplit split = SplitK(input.k, tile.compute);
  plan.k_block = split.k_block;
  plan.num_k_blocks = split.num_k_blocks;
  if (input.rows_of_b && tile.run_unpacked != nullptr &&
      input.m <= tile.rows[1]) {
    SetUnpacked(input, tile, plan);
    return plan;
  }
  plan.fused_b = input.pack_b && input.m <= kFusedRows;
  SetTile(input.m, tile, plan);
  const int64_t columns = int64_t{plan.tile_vectors} * kLanes;
  plan.m_block = EvenPiece(input.m, kMBlock, plan.tile_rows);
  plan.m_task =
      EvenPiece(std::min(plan.m_block, input.m), kMTask, plan.tile_rows);
  plan.n_block =
      EvenPiece(input.n, kNBlock, plan.fused_b ? kFusedTask : columns);
  plan.n_task = EvenPiece(std::min(plan.n_block, input.n), kNTask, columns);
  if (plan.fused_b) {
    plan.m_task = plan.m_block;
    plan.n_task = kFusedTask;
  }
  const int64_t words = tile.words(std::min(plan.k_block, input.k));
  const int64_t a_panels =
      CeilDiv(std::min(plan.m_block, input.m), plan.tile_rows);
  const int64_t b_panels = CeilDiv(std::min(plan.n_block, input.n), kLanes);
  plan.a_bytes = RoundUp(a_panels * words * tile.a_pitch * 4, 64);
  if (input.pack_b) plan.b_bytes = b_panels * words * kLanes * 4;
  if (input.needs_partial && plan.num_k_blocks > 1) {
    plan.partial_bytes =
        RoundUp(std::min(plan.m_block, input.m) * b_panels * kLanes * 4, 64);
  }
  return plan;
}

// Between the sizes where the cut changes more rows take more workspace, and so
// does more of K.
int64_t MostBytesUpToM(const PlanInput& input, const Tile& tile) {
  return MostBytes(
      input, &PlanInput::m,
      {tile.rows[1], kLowRows, kFusedRows, kMBlock, 2 * kMBlock, input.m},
      tile);
}

int64_t MostBytesUpToK(const PlanInput& input, const Tile& tile) {
  const int64_t block = MostKBlock(tile.compute);
  return MostBytes(input, &PlanInput::k, {block, 2 * block, input.k}, tile);
}

std::string ToString(const Plan& plan) {
  return absl::StrCat("k ", plan.num_k_blocks, "x", plan.k_block, " tile ",
                      plan.tile_rows, "x", plan.tile_vectors * kLanes,
                      " block ", plan.m_block, "x", plan.n_block, " task ",
                      plan.m_task, "x", plan.n_task, " workspace ",
                      plan.workspace_bytes(), " B");
}

}  // namespace espalier::gemm
