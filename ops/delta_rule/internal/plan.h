#ifndef ESPALIER_OPS_DELTA_RULE_INTERNAL_PLAN_H_
#define ESPALIER_OPS_DELTA_RULE_INTERNAL_PLAN_H_

#include <cstdint>
#include <vector>

#include "espalier/ops/gemm/tile.h"
#include "espalier/ops/scratch_layout.h"
#include "espalier/runtime/dtype.h"

namespace espalier::delta_rule {

// Rows whose pairs are multiplied one by one; between two tiles of rows the
// decay is split at the boundary before the later one.
inline constexpr int64_t kTileRows = 16;
// The state is saved at every so many tokens of a document.
inline constexpr int64_t kSegment = 256;

struct Sizes {
  int64_t num_tokens = 0;
  int64_t num_heads = 0;   // of values, gates and states
  int64_t num_groups = 0;  // heads of queries and keys
  int64_t width = 0;       // K
  int64_t v_width = 0;     // V

  int64_t heads_per_group() const { return num_heads / num_groups; }
};

// Tokens [begin, end), number `index` of the batch. Saved states of its
// segments but the first lie from row `first_state` on.
struct Document {
  int64_t index = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first_state = 0;
};

// Of a slot of scratch memory.
using Part = ScratchPart;

// How the work is cut and where a task's scratch lies, by sizes and the
// instruction set alone. C chunk, K and V rounded up to whole vectors of 16;
// f32 and row-major.
struct Plan {
  const gemm::Tile* tile = nullptr;
  int panel_rows = 1;     // of the register tile; divides kTileRows
  int panel_lanes = 1;    // of packed A: one or several times panel_rows
  int panel_vectors = 1;  // its columns / 16
  int64_t chunk = 0;
  int64_t segment_chunks = 0;
  int64_t width = 0;
  int64_t v_width = 0;
  // Longest first; the empty ones, too.
  std::vector<Document> documents;
  int64_t num_states = 0;

  Part state;    // [K, V]
  Part queries;  // [C, K]
  Part keys;     // [C, K]
  Part decays;   // [C, K] exp(g)
  // What is only multiplied is rounded at once, to:
  DType operand = kF32;
  Part rows;        // [tiles, 32, K]: keys, then queries, decayed from the
                    // tile's beginning
  Part from_start;  // [2 C, K]: keys, then queries, decayed from the chunk's
                    // beginning
  Part columns;     // [C, K]: keys decayed to the beginning of a later tile
  Part tile_decay;  // [tiles, K]
  Part prefix;      // [tiles + 1, K]: decay from the chunk's beginning
  Part reads;       // [2 C, V]: from_start times the state
  Part beta;        // [C]
  Part a, b;        // packed operands
  // What is kept of each chunk of a segment: one chunk in the forward pass.
  struct Kept {
    Part state;         // [K, V] before the chunk; backward only
    Part updates;       // [C, V] u
    Part residual;      // [C, V] v - S^T k
    Part keys;          // [C, C] M of docs/numerics.md
    Part queries;       // [C, C] N
    Part inverse;       // [C, C] (I + diag(beta) M)^-1
    int64_t bytes = 0;  // of one chunk
  } kept;
  // Backward only.
  Part dstate;         // [K, V]
  Part douts;          // [C, V]: scale do
  Part solved;         // [C, V]: X
  Part moved;          // [C, V]: -beta X
  Part dupdates;       // [C, V]
  Part dkeys;          // [C, C]
  Part dqueries;       // [C, C]
  Part terms;          // [2 C, K]: of keys as rows, of queries
  Part local_columns;  // [C, K]: keys decayed to their tile's end
  Part dcolumns;       // [C, K]: of keys as columns
  Part dtotal;         // [K]
  Part dbeta;          // [C]
  int64_t slot_bytes = 0;
};

// chunk: 16, 32 or 64; operand: of the products, f32 or bf16.
Plan MakePlan(const Sizes& sizes, const std::vector<int32_t>& cu_seqlens,
              int64_t chunk, DType operand, Isa isa, bool backward);

}  // namespace espalier::delta_rule

#endif  // ESPALIER_OPS_DELTA_RULE_INTERNAL_PLAN_H_
