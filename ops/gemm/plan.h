#ifndef ESPALIER_OPS_GEMM_PLAN_H_
#define ESPALIER_OPS_GEMM_PLAN_H_

#include <cstdint>
#include <string>

#include "espalier/ops/gemm/tile.h"

namespace espalier::gemm {

// What the cutting of a product depends on, and nothing else: no thread count.
struct PlanInput {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool pack_b = true;          // false: B is packed already
  bool needs_partial = false;  // C cannot hold the f32 sums of K blocks
  bool rows_of_b = false;      // B is in memory with its columns contiguous
};

// How C [m, n] and K are cut. C is walked in blocks [m_block, n_block]; within
// a block K is walked in k_block elements, each operand packed once and shared;
// a block's tasks are [m_task, n_task] pieces of C for ParallelFor, each a grid
// of register tiles of tile_rows by tile_vectors * 16.
struct Plan {
  int64_t k_block = 0;  // a multiple of 32
  int64_t num_k_blocks = 1;
  int tile_rows = 1;
  int tile_vectors = 1;
  // All rows are one task: each task packs its own columns of B.
  bool fused_b = false;
  // Few rows: B is not packed, all of A is packed at once, and a task runs
  // n_task columns through all of K.
  bool unpacked_b = false;
  int64_t m_block = 0;  // multiples of the tile, or all of m / n
  int64_t n_block = 0;
  int64_t m_task = 0;
  int64_t n_task = 0;
  int64_t a_bytes = 0;  // parts of the workspace, each a multiple of 64
  int64_t b_bytes = 0;
  int64_t partial_bytes = 0;

  int64_t workspace_bytes() const { return a_bytes + b_bytes + partial_bytes; }
};

// The cut of K: even pieces of at most 512 words of a native tile. A function
// of K and the Compute only, the same for every instruction set.
struct KSplit {
  int64_t k_block;
  int64_t num_k_blocks;
};
KSplit SplitK(int64_t k, Compute compute);

Plan MakePlan(const PlanInput& input, const Tile& tile);

// The most workspace of any m, or k, in [1, what `input` says], all else alike.
int64_t MostBytesUpToM(const PlanInput& input, const Tile& tile);
int64_t MostBytesUpToK(const PlanInput& input, const Tile& tile);

// "k 2x512 tile 14x32 ...", for benches and messages.
std::string ToString(const Plan& plan);

}  // namespace espalier::gemm

#endif  // ESPALIER_OPS_GEMM_PLAN_H_
