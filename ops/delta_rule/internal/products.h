#ifndef ESPALIER_OPS_DELTA_RULE_INTERNAL_PRODUCTS_H_
#define ESPALIER_OPS_DELTA_RULE_INTERNAL_PRODUCTS_H_

#include <algorithm>
#include <cstdint>

#include "espalier/ops/delta_rule/internal/plan.h"
#include "espalier/ops/gemm/ahead.h"

namespace espalier::delta_rule {

// A matrix in scratch as an operand: its rows as lanes, or its columns.
inline gemm::Operand ByRow(const void* data, int64_t stride,
                           DType dtype = kF32) {
  return {data, dtype, stride, 1};
}
inline gemm::Operand ByColumn(const void* data, int64_t stride,
                              DType dtype = kF32) {
  return {data, dtype, 1, stride};
}

// Products of matrices in scratch, all of whose sides are multiples of 16,
// through the register tile of a plan. A is packed to panels of panel_lanes, B
// to panels of 16 columns, both with `depth` words a lane.
class Products {
 public:
  explicit Products(const Plan& plan) : plan_(plan), tile_(*plan.tile) {}

  int64_t words(int64_t num_k) const { return tile_.words(num_k); }

  // Lanes from `lane` on, k from `k` on (`operand` begins at both).
  void PackA(const gemm::Operand& operand, int64_t lane, int64_t num_lanes,
             int64_t k, int64_t num_k, int64_t depth, uint32_t* a) const {
    const int64_t stride = depth * tile_.a_pitch;
    tile_.pack_a({.operand = operand,
                  .num_lanes = num_lanes,
                  .num_k = num_k,
                  .panel_lanes = plan_.panel_lanes,
                  .out = a + lane / plan_.panel_lanes * stride +
                         words(k) * tile_.a_pitch,
                  .out_stride = stride});
  }
  void PackB(const gemm::Operand& operand, int64_t num_lanes, int64_t num_k,
             uint32_t* b) const {
    PackB(operand, num_lanes, 0, num_k, words(num_k), b);
  }
  void PackB(const gemm::Operand& operand, int64_t num_lanes, int64_t k,
             int64_t num_k, int64_t depth, uint32_t* b) const {
    tile_.pack_b({.operand = operand,
                  .num_lanes = num_lanes,
                  .num_k = num_k,
                  .out = b + words(k) * gemm::kLanes,
                  .out_stride = depth * gemm::kLanes});
  }

  // Rows that later products bring near on the way: a chunk's rows lie pages
  // apart, which the hardware does not foresee. Forgets what is left of earlier
  // ones at Forget.
  void Forget() { num_ahead_ = next_ahead_ = 0; }
  void Fetch(const void* data, DType dtype, int64_t stride, int64_t num_rows,
             int64_t width) {
    if (num_ahead_ == kMaxAhead || data == nullptr || num_rows <= 0) return;
    ahead_[num_ahead_++] = gemm::Ahead(
        gemm::StripsOf({data, dtype, stride, 1}, 0, num_rows, 0, width),
        gemm::Strips(), 0, 1);
  }

  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  // c [rows, cols] = or += A B over the k of a range, for the rows of A, whose
  // first is c's; both operands have `depth` words a lane.
  void Run(const uint32_t* a, Range rows, const uint32_t* b, int64_t cols,
           Range k, int64_t depth, gemm::TileStore store, float* c,
           int64_t c_stride) {
    gemm::TileArgs run;
    run.num_words = words(k.end) - words(k.begin);
    run.b_stride = depth * gemm::kLanes;
    run.rows = plan_.panel_rows;
    run.store = store;
    run.c_stride = c_stride;
    const int64_t step = int64_t{plan_.panel_vectors} * gemm::kLanes;
    for (int64_t col = 0; col < cols; col += step) {
      run.cols = static_cast<int>(std::min(step, cols - col));
      run.b = b + (col / gemm::kLanes * depth + words(k.begin)) * gemm::kLanes;
      for (int64_t row = rows.begin; row < rows.end; row += plan_.panel_rows) {
        run.a =
            a +
            (row / plan_.panel_lanes * depth + words(k.begin)) * tile_.a_pitch +
            row % plan_.panel_lanes;
        run.c = c + (row - rows.begin) * c_stride + col;
        AddAhead(run);
        tile_.run(run);
      }
    }
  }

 private:
  static constexpr int kMaxAhead = 12;

  void AddAhead(gemm::TileArgs& run) {
    while (next_ahead_ < num_ahead_) {
      if (ahead_[next_ahead_].AddTo(run)) return;
      ++next_ahead_;
    }
    run.prefetch = nullptr;
  }

  const Plan& plan_;
  const gemm::Tile& tile_;
  gemm::Ahead ahead_[kMaxAhead];
  int num_ahead_ = 0;
  int next_ahead_ = 0;
};

}  // namespace espalier::delta_rule

#endif  // ESPALIER_OPS_DELTA_RULE_INTERNAL_PRODUCTS_H_
