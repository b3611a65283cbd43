#include "espalier/ops/attention/internal/plan.h"

#include <algorithm>

#include "espalier/ops/online_softmax/online_softmax.h"
#include "espalier/ops/scratch_layout.h"
#include "espalier/runtime/ceil_div.h"

namespace espalier::attention {

namespace {

// Measured on AMD Zen 5: packed operands of a task stay in 1 MiB of L2.
constexpr int64_t kForwardRows = 256;  // queries times heads of a group
constexpr int64_t kForwardKeys = 256;
constexpr int64_t kBackwardBlock = 192;

// Words of packed operands: `lanes` of B, or of A in panels of tile_rows.
int64_t WordsOfB(const gemm::Tile& tile, int64_t lanes, int64_t num_k) {
  return RoundUp(lanes, gemm::kLanes) * tile.words(num_k);
}
int64_t WordsOfA(const gemm::Tile& tile, int rows, int64_t lanes,
                 int64_t num_k) {
  return CeilDiv(lanes, rows) * tile.a_pitch * tile.words(num_k);
}

// Pairs of one document whose blocks are [first, last), as steps of a distance
// that is the same for all documents.
class Steps {
 public:
  Steps(const std::vector<Block>& blocks, const Mask& mask)
      : blocks_(blocks), mask_(mask) {}

  // Appends the pairs at `distance` of every document; false when there are
  // none and will be none further on.
  bool Append(int64_t distance, std::vector<BlockPair>& pairs) const {
    bool more = false;
    size_t first = 0;
    while (first < blocks_.size()) {
      size_t last = first;
      while (last < blocks_.size() &&
             blocks_[last].doc_begin == blocks_[first].doc_begin) {
        ++last;
      }
      const int64_t count = static_cast<int64_t>(last - first);
      if (distance < count) more = true;
      for (int64_t key = 0; distance < count && key < count; ++key) {
        int64_t query = key + distance;
        if (query >= count) {
          if (mask_.causal) break;
          query -= count;
        }
        AppendPair(static_cast<int64_t>(first) + query,
                   static_cast<int64_t>(first) + key, pairs);
      }
      first = last;
    }
    return more;
  }

 private:
  void AppendPair(int64_t query, int64_t key,
                  std::vector<BlockPair>& pairs) const {
    const Block& q = blocks_[static_cast<size_t>(query)];
    const Block& k = blocks_[static_cast<size_t>(key)];
    if (mask_.KeyBegin(q.begin, q.doc_begin) >= k.end ||
        mask_.KeyEnd(q.end - 1, q.doc_end) <= k.begin) {
      return;
    }
    pairs.push_back({static_cast<int32_t>(query), static_cast<int32_t>(key)});
  }

  const std::vector<Block>& blocks_;
  const Mask& mask_;
};

}  // namespace

std::vector<Block> MakeBlocks(const std::vector<int32_t>& cu_seqlens,
                              int64_t size) {
  std::vector<Block> blocks;
  for (size_t d = 0; d + 1 < cu_seqlens.size(); ++d) {
    const int64_t doc_begin = cu_seqlens[d];
    const int64_t doc_end = cu_seqlens[d + 1];
    for (int64_t begin = doc_begin; begin < doc_end; begin += size) {
      blocks.push_back(
          {begin, std::min(begin + size, doc_end), doc_begin, doc_end});
    }
  }
  return blocks;
}

ForwardPlan PlanForward(const Sizes& sizes,
                        const std::vector<int32_t>& cu_seqlens, DType dtype,
                        Isa isa) {
  ForwardPlan plan;
  const gemm::Tile& tile = gemm::FindTile(isa, gemm::ComputeFor(dtype, dtype));
  plan.tile = &tile;
  plan.tile_vectors = std::min(2, tile.max_vectors);
  plan.tile_rows = tile.rows[plan.tile_vectors];
  const int64_t heads = sizes.heads_per_group();
  plan.query_block =
      std::max<int64_t>(1, kForwardRows / heads / plan.tile_rows) *
      plan.tile_rows;
  plan.key_block = kForwardKeys;
  plan.score_stride = plan.key_block + online_softmax::kSlack;
  plan.out_width = RoundUp(sizes.v_width, gemm::kLanes);
  const int64_t rows = heads * plan.query_block;
  ScratchLayout layout;
  plan.queries = layout.Words(
      heads * WordsOfA(tile, plan.tile_rows, plan.query_block, sizes.width));
  plan.keys = layout.Words(WordsOfB(tile, plan.key_block, sizes.width));
  plan.values = layout.Words(WordsOfB(tile, sizes.v_width, plan.key_block));
  plan.scores = layout.Words(plan.tile_rows * plan.score_stride);
  plan.powers = layout.Words(WordsOfA(tile, plan.tile_rows, 1, plan.key_block));
  plan.out = layout.Words(rows * plan.out_width);
  plan.max = layout.Words(rows);
  plan.sum = layout.Words(rows);
  plan.slot_bytes = layout.bytes();
  plan.blocks = MakeBlocks(cu_seqlens, plan.query_block);
  return plan;
}

BackwardPlan PlanBackward(const Sizes& sizes, const Mask& mask,
                          const std::vector<int32_t>& cu_seqlens, DType dtype,
                          Isa isa) {
  BackwardPlan plan;
  const gemm::Tile& tile = gemm::FindTile(isa, gemm::ComputeFor(dtype, dtype));
  plan.tile = &tile;
  plan.tile_vectors = std::min(2, tile.max_vectors);
  plan.tile_rows = tile.rows[plan.tile_vectors];
  plan.block = kBackwardBlock;
  plan.score_stride =
      RoundUp(plan.block, plan.tile_rows) + online_softmax::kSlack;
  ScratchLayout layout;
  const int rows = plan.tile_rows;
  const int64_t block = plan.block;
  plan.queries = layout.Words(WordsOfA(tile, rows, block, sizes.width));
  plan.keys = layout.Words(WordsOfB(tile, block, sizes.width));
  plan.values = layout.Words(WordsOfB(tile, block, sizes.v_width));
  plan.douts = layout.Words(WordsOfA(tile, rows, block, sizes.v_width));
  plan.query_rows = layout.Words(WordsOfB(tile, sizes.width, block));
  plan.key_rows = layout.Words(WordsOfB(tile, sizes.width, block));
  plan.dout_rows = layout.Words(WordsOfB(tile, sizes.v_width, block));
  plan.scores = layout.Words(rows * plan.score_stride);
  plan.dscores = layout.Words(rows * plan.score_stride);
  plan.dscore_panel = layout.Words(WordsOfA(tile, rows, 1, block));
  plan.powers_by_key = layout.Words(WordsOfA(tile, rows, block, block));
  plan.dscores_by_key = layout.Words(WordsOfA(tile, rows, block, block));
  plan.slot_bytes = layout.bytes();
  plan.blocks = MakeBlocks(cu_seqlens, block);
  const Steps steps(plan.blocks, mask);
  for (int64_t distance = 0; steps.Append(distance, plan.pairs); ++distance) {
    const int64_t end = static_cast<int64_t>(plan.pairs.size());
    if (plan.step_ends.empty() || plan.step_ends.back() < end) {
      plan.step_ends.push_back(end);
    }
  }
  return plan;
}

}  // namespace espalier::attention
