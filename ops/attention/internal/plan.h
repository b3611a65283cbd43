#ifndef ESPALIER_OPS_ATTENTION_INTERNAL_PLAN_H_
#define ESPALIER_OPS_ATTENTION_INTERNAL_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "espalier/ops/gemm/tile.h"
#include "espalier/ops/scratch_layout.h"
#include "espalier/runtime/dtype.h"

namespace espalier::attention {

// Which keys a token sees, and the scale of the scores.
struct Mask {
  bool causal = true;
  int64_t window = 0;
  double scale = 1;
  double soft_cap = 0;

  // The keys [begin, end) that token t sees of its document [doc_begin,
  // doc_end). Never empty; both bounds never fall as t grows.
  int64_t KeyBegin(int64_t t, int64_t doc_begin) const {
    return window > 0 ? std::max(doc_begin, t - window + 1) : doc_begin;
  }
  int64_t KeyEnd(int64_t t, int64_t doc_end) const {
    if (causal) return t + 1;
    return window > 0 ? std::min(doc_end, t + window) : doc_end;
  }
};

struct Sizes {
  int64_t num_tokens = 0;
  int64_t num_heads = 0;   // of queries
  int64_t num_groups = 0;  // key/value heads
  int64_t width = 0;       // Dqk
  int64_t v_width = 0;     // Dv

  int64_t heads_per_group() const { return num_heads / num_groups; }
};

// Tokens [begin, end) of the document [doc_begin, doc_end).
struct Block {
  int64_t begin, end, doc_begin, doc_end;
};

// Cuts every document, from its own beginning, into blocks of at most `size`.
std::vector<Block> MakeBlocks(const std::vector<int32_t>& cu_seqlens,
                              int64_t size);

// Of a slot of scratch memory.
using Part = ScratchPart;

// The forward pass: one task per block of queries and group of heads, which
// walks the keys in blocks of key_block from the document's beginning. All of
// it depends on sizes and the instruction set, never on threads.
struct ForwardPlan {
  const gemm::Tile* tile = nullptr;
  int tile_rows = 1;     // of the register tile
  int tile_vectors = 1;  // its columns / 16
  int64_t query_block = 1;
  int64_t key_block = 1;
  int64_t score_stride = 0;  // floats
  int64_t out_width = 0;     // v_width rounded up to whole panels
  Part queries, keys, values, scores, powers, out, max, sum;
  int64_t slot_bytes = 0;
  std::vector<Block> blocks;
};
ForwardPlan PlanForward(const Sizes& sizes,
                        const std::vector<int32_t>& cu_seqlens, DType dtype,
                        Isa isa);

// Two blocks of one document, by index.
struct BlockPair {
  int32_t queries, keys;
};

// The backward pass: one task per pair of blocks and group of heads. Pairs are
// ordered in steps; within one step no block of queries and no block of keys
// occurs twice, so the sums into dq, dk and dv need no locks and have one
// order. In the first step every block meets itself.
struct BackwardPlan {
  const gemm::Tile* tile = nullptr;
  int tile_rows = 1;
  int tile_vectors = 1;
  int64_t block = 1;
  int64_t score_stride = 0;
  Part queries, keys, values, douts;     // packed to multiply along the width
  Part query_rows, key_rows, dout_rows;  // packed to multiply along tokens
  Part scores, dscores;                  // one panel of rows
  Part dscore_panel;                     // packed, lanes are queries
  Part powers_by_key, dscores_by_key;    // packed, lanes are keys
  int64_t slot_bytes = 0;
  std::vector<Block> blocks;
  std::vector<BlockPair> pairs;
  std::vector<int64_t> step_ends;  // into pairs
};
BackwardPlan PlanBackward(const Sizes& sizes, const Mask& mask,
                          const std::vector<int32_t>& cu_seqlens, DType dtype,
                          Isa isa);

}  // namespace espalier::attention

#endif  // ESPALIER_OPS_ATTENTION_INTERNAL_PLAN_H_
