#ifndef ESPALIER_OPS_PACKED_MATMUL_INTERNAL_PRODUCT_PLAN_H_
#define ESPALIER_OPS_PACKED_MATMUL_INTERNAL_PRODUCT_PLAN_H_

#include <algorithm>
#include <cstdint>

#include "espalier/ops/gemm/plan.h"
#include "espalier/ops/packed_matmul/panel_products.h"
#include "espalier/runtime/ceil_div.h"

namespace espalier::packed {

// How one product is cut: tasks of [m_block, kProductChunk] of C, each a loop
// over units of `unit` columns whose B is decoded together; tiles of tile_rows
// by 16 * tile_vectors. A function of sizes and the tile alone.
struct ProductPlan {
  int64_t k_block = 0;
  int64_t num_k_blocks = 1;
  int tile_rows = 1;
  int tile_vectors = 1;
  int64_t m_block = 1;
  int64_t unit = 1;
  bool fused = false;
  bool along_rows = false;  // tiles are walked along C's rows, not its columns
  int64_t m_tasks = 0;
  int64_t n_tasks = 0;
  int64_t a_bytes = 0;  // scratch of one task, multiples of 64
  int64_t b_bytes = 0;
  int64_t partial_bytes = 0;
  int64_t fused_bytes = 0;  // in their place
  int64_t sum_bytes = 0;    // behind these: f32 [m_block, kProductChunk]

  int64_t num_tasks() const { return m_tasks * n_tasks; }
  int64_t scratch_bytes() const {
    return std::max(a_bytes + b_bytes + partial_bytes, fused_bytes + sum_bytes);
  }
};

inline ProductPlan PlanProduct(const Product& product, const gemm::Tile& tile,
                               DType c_dtype) {
  constexpr int64_t kMostABytes = int64_t{3} << 19;  // 1.5 MiB, beside L2
  constexpr int64_t kMostRows = 512;
  constexpr int64_t kFusedRows = 256;
  constexpr int64_t kFusedTile = 8;
  constexpr int64_t kFewWords = 128;
  constexpr int64_t kOneTile = 8;  // rows up to which one low wide tile wins
  ProductPlan plan;
  if (product.m == 0 || product.n == 0) return plan;
  const gemm::KSplit split = gemm::SplitK(product.k, tile.compute);
  plan.k_block = split.k_block;
  plan.num_k_blocks = split.num_k_blocks;
  plan.tile_vectors = std::min(product.m <= kOneTile ? 3 : 2, tile.max_vectors);
  plan.unit = plan.tile_vectors == 3 ? 96 : 128;  // whole cache lines of codes
  // Writing C is most of the work: in the order of its memory.
  plan.along_rows =
      product.pack_b == nullptr && tile.words(product.k) <= kFewWords;
  if (plan.along_rows) plan.unit = kProductChunk;
  // Terms join an f32 C block by block of K (gemm.h), which these do not.
  const bool can_finish =
      product.plain() || plan.num_k_blocks == 1 || c_dtype != kF32;
  plan.fused = product.fused.run != nullptr && can_finish &&
               product.m <= product.fused.most_rows;
  const int64_t most_rows = tile.rows[plan.tile_vectors];
  const int64_t row_bytes =
      tile.words(product.k) * tile.a_pitch * 4 / most_rows + 1;
  int64_t block =
      std::max<int64_t>(
          4, std::min(kMostABytes / row_bytes, kMostRows) / most_rows) *
      most_rows;
  if (plan.fused) {
    block = product.fused.a_bytes / (2 * product.k + 1) / kFusedTile;
    block = std::clamp<int64_t>(block * kFusedTile, 32, kFusedRows);
  }
  plan.m_block = CeilDiv(product.m, CeilDiv(product.m, block));
  if (plan.fused) plan.m_block = RoundUp(plan.m_block, kFusedTile);
  const int64_t tiles = CeilDiv(plan.m_block, most_rows);
  plan.tile_rows = static_cast<int>(CeilDiv(plan.m_block, tiles));
  if (!plan.fused) plan.m_block = tiles * plan.tile_rows;
  plan.m_tasks = CeilDiv(product.m, plan.m_block);
  plan.n_tasks = CeilDiv(product.n, kProductChunk);
  plan.a_bytes = RoundUp(tiles * tile.words(product.k) * tile.a_pitch * 4, 64);
  plan.b_bytes = tile.words(std::min(plan.k_block, product.k)) * 4 *
                 RoundUp(std::min(product.n, plan.unit), gemm::kLanes);
  if (plan.fused) {
    plan.fused_bytes =
        RoundUp(product.fused.scratch_bytes(product.source, plan.m_block), 64);
    if (!product.plain()) plan.sum_bytes = plan.m_block * kProductChunk * 4;
  }
  if (plan.num_k_blocks > 1 && c_dtype != kF32) {
    plan.partial_bytes = plan.m_block * plan.unit * 4;
  }
  return plan;
}

}  // namespace espalier::packed

#endif  // ESPALIER_OPS_PACKED_MATMUL_INTERNAL_PRODUCT_PLAN_H_
