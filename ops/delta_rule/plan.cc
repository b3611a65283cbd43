#include "espalier/ops/delta_rule/internal/plan.h"

#include <algorithm>

#include "espalier/ops/scratch_layout.h"
#include "espalier/runtime/ceil_div.h"

namespace espalier::delta_rule {

namespace {

std::vector<Document> DocumentsOf(const std::vector<int32_t>& cu_seqlens,
                                  int64_t& num_states) {
  std::vector<Document> documents;
  num_states = 0;
  for (size_t i = 0; i + 1 < cu_seqlens.size(); ++i) {
    const Document document = {static_cast<int64_t>(i), cu_seqlens[i],
                               cu_seqlens[i + 1], num_states};
    const int64_t length = document.end - document.begin;
    num_states += std::max<int64_t>(0, CeilDiv(length, kSegment) - 1);
    documents.push_back(document);
  }
  std::stable_sort(documents.begin(), documents.end(),
                   [](const Document& a, const Document& b) {
                     return a.end - a.begin > b.end - b.begin;
                   });
  return documents;
}

// The widest register tile whose rows divide a tile of rows.
void ChooseTile(DType operand, Isa isa, Plan& plan) {
  const gemm::Tile& tile =
      gemm::FindTile(isa, gemm::ComputeFor(operand, operand));
  plan.tile = &tile;
  plan.panel_vectors = std::min(3, tile.max_vectors);
  plan.panel_rows = tile.rows[plan.panel_vectors] >= 8 ? 8 : 4;
  // Whole panels are packed fastest.
  plan.panel_lanes = tile.a_pitch == kTileRows ? kTileRows : plan.panel_rows;
}

void LayOutBackward(Plan& plan, ScratchLayout& layout) {
  const int64_t c = plan.chunk;
  plan.dstate = layout.Words(plan.width * plan.v_width);
  plan.douts = layout.Words(c * plan.v_width);
  plan.solved = layout.Words(c * plan.v_width);
  plan.moved = layout.Words(c * plan.v_width);
  plan.dupdates = layout.Words(c * plan.v_width);
  plan.dkeys = layout.Words(c * c);
  plan.dqueries = layout.Words(c * c);
  plan.terms = layout.Words(2 * c * plan.width);
  plan.local_columns = layout.Words(c * plan.width);
  plan.dcolumns = layout.Words(c * plan.width);
  plan.dtotal = layout.Words(plan.width);
  plan.dbeta = layout.Words(c);
}

}  // namespace

Plan MakePlan(const Sizes& sizes, const std::vector<int32_t>& cu_seqlens,
              int64_t chunk, DType operand, Isa isa, bool backward) {
  Plan plan;
  ChooseTile(operand, isa, plan);
  plan.operand = operand;
  plan.chunk = chunk;
  plan.segment_chunks = kSegment / chunk;
  plan.width = RoundUp(sizes.width, gemm::kLanes);
  plan.v_width = RoundUp(sizes.v_width, gemm::kLanes);
  plan.documents = DocumentsOf(cu_seqlens, plan.num_states);
  const int64_t tiles = chunk / kTileRows;
  ScratchLayout layout;
  plan.state = layout.Words(plan.width * plan.v_width);
  plan.queries = layout.Words(chunk * plan.width);
  plan.keys = layout.Words(chunk * plan.width);
  plan.decays = layout.Words(chunk * plan.width);
  plan.rows = layout.Words(2 * chunk * plan.width);
  plan.columns = layout.Words(chunk * plan.width);
  plan.tile_decay = layout.Words(tiles * plan.width);
  plan.prefix = layout.Words((tiles + 1) * plan.width);
  plan.from_start = layout.Words(2 * chunk * plan.width);
  plan.reads = layout.Words(2 * chunk * plan.v_width);
  plan.beta = layout.Words(chunk);
  // The largest operands: lanes are rows of chunks or the width.
  const int64_t lanes = std::max({2 * chunk, plan.width, plan.v_width});
  const int64_t depth =
      plan.tile->words(std::max({2 * chunk, plan.width, plan.v_width}));
  plan.a = layout.Words(CeilDiv(lanes, plan.panel_lanes) * plan.tile->a_pitch *
                        depth);
  plan.b = layout.Words(RoundUp(lanes, gemm::kLanes) * depth);
  if (backward) LayOutBackward(plan, layout);
  const int64_t kept_begin = layout.bytes();
  if (backward) plan.kept.state = layout.Words(plan.width * plan.v_width);
  plan.kept.updates = layout.Words(chunk * plan.v_width);
  plan.kept.residual = layout.Words(chunk * plan.v_width);
  plan.kept.keys = layout.Words(chunk * chunk);
  plan.kept.queries = layout.Words(chunk * chunk);
  plan.kept.inverse = layout.Words(chunk * chunk);
  plan.kept.bytes = layout.bytes() - kept_begin;
  plan.slot_bytes =
      kept_begin + (backward ? plan.segment_chunks : 1) * plan.kept.bytes;
  return plan;
}

}  // namespace espalier::delta_rule
