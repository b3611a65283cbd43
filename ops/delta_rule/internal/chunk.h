#ifndef ESPALIER_OPS_DELTA_RULE_INTERNAL_CHUNK_H_
#define ESPALIER_OPS_DELTA_RULE_INTERNAL_CHUNK_H_

#include <cstdint>

#include "espalier/ops/delta_rule/internal/plan.h"
#include "espalier/ops/delta_rule/internal/products.h"
#include "espalier/ops/delta_rule/internal/rows.h"
#include "espalier/runtime/view.h"

namespace espalier::delta_rule {

// The tensors a chunk is read from.
struct Inputs {
  const View& q;  // [T, G, K]
  const View& k;
  const View& v;  // [T, N, V]
  const View& g;  // [T, N, K] or [T, N]
  const View& beta;
};

// Rows of head h of a [T, heads, width] or [T, heads] tensor from token t on.
Source RowsOf(const View& view, int64_t h, int64_t t);
Target RowsTo(const View& view, int64_t h, int64_t t);

// What the forward pass and the way back have in common: one head's walk over
// chunks of tokens, in one slot of scratch memory. The names are those of
// docs/numerics.md.
class ChunkWalk {
 public:
  ChunkWalk(const Inputs& inputs, const Plan& plan, Isa isa, int64_t head,
            char* slot);

  // A state in scratch from a [K, V] tensor's row, or zeros; and back.
  void ReadState(const float* from, float* to) const;
  void WriteState(const float* from, float* to) const;

  // Queries, keys, decays and beta of the tokens [begin, end), at most a chunk.
  void LoadTokens(int64_t begin, int64_t end);
  // Lets the products bring near the rows of one head of a tensor.
  void Fetch(const View& view, int64_t h, int64_t begin, int64_t end);
  // What LoadTokens reads.
  void FetchTokens(int64_t begin, int64_t end);
  // u and what leads to it, into entry `kept`; with `outputs`, what the queries
  // read of the state into the second half of `reads`.
  void Solve(int64_t kept, bool outputs);
  // After Solve: the second half of `reads` becomes S^T q of every token.
  void Outputs(int64_t kept);
  // After Solve: `to` is the state after the chunk; may be the state itself.
  void Advance(float* to);
  // Where the state lies: the slot's part at first.
  float* state() const { return state_; }
  void SetState(float* state) { state_ = state; }

  float* Floats(Part part) const {
    return reinterpret_cast<float*>(slot_ + part.offset);
  }
  float* Floats(Part part, int64_t kept) const {
    return reinterpret_cast<float*>(slot_ + part.offset +
                                    kept * plan_.kept.bytes);
  }
  uint32_t* Words(Part part) const {
    return reinterpret_cast<uint32_t*>(slot_ + part.offset);
  }
  const Plan& plan() const { return plan_; }
  Products& products() { return products_; }
  Isa isa() const { return isa_; }
  int64_t head() const { return head_; }
  int64_t group() const { return group_; }
  int64_t num_tiles() const { return plan_.chunk / kTileRows; }
  // The tokens [begin, end) that are loaded.
  int64_t begin() const { return begin_; }
  int64_t end() const { return begin_ + num_rows_; }
  int64_t num_rows() const { return num_rows_; }
  // Decay over the whole chunk, [K].
  const float* total_decay() const {
    return Floats(plan_.prefix) + num_tiles() * plan_.width;
  }
  const float* tile_decay(int64_t tile) const {
    return Floats(plan_.tile_decay) + tile * plan_.width;
  }
  // Keys, then queries, of a tile of rows.
  const void* rows(int64_t tile) const {
    return slot_ + plan_.rows.offset +
           2 * tile * kTileRows * plan_.width * SizeOf(plan_.operand);
  }
  // Columns of the tiles before tile - 1 are carried from where that begins to
  // where `tile` does.
  void CarryColumns(Part columns, int64_t tile) const;

 private:
  void Scores(int64_t kept);

  const Inputs& inputs_;
  const Plan& plan_;
  Products products_;
  const Isa isa_;
  const int64_t head_;
  const int64_t group_;
  char* const slot_;
  float* state_;  // [K, V]
  // Of the chunk.
  int64_t begin_ = 0;
  int64_t num_rows_ = 0;
};

}  // namespace espalier::delta_rule

#endif  // ESPALIER_OPS_DELTA_RULE_INTERNAL_CHUNK_H_
