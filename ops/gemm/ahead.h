#ifndef ESPALIER_OPS_GEMM_AHEAD_H_
#define ESPALIER_OPS_GEMM_AHEAD_H_

#include <algorithm>
#include <cstdint>

#include "espalier/ops/gemm/tile.h"
#include "espalier/runtime/ceil_div.h"

// Packing reads memory in a pattern that the hardware does not foresee, so the
// register tiles, which leave the memory idle, fetch what is packed next.
namespace espalier::gemm {

// The lines of a rectangle of an operand, as units of kPrefetchLines of them:
// along the rows in memory where those are long, down the rows where short.
struct Strips {
  const char* base = nullptr;
  int64_t line_step = 0;    // bytes between the lines of a unit
  int64_t unit_step = 0;    // between units below one another
  int64_t num_units = 0;    // below one another
  int64_t column_step = 0;  // between columns of units
  int64_t num_columns = 0;

  int64_t size() const { return num_units * num_columns; }
};

inline Strips StripsOf(const Operand& operand, int64_t lane, int64_t num_lanes,
                       int64_t k, int64_t num_k) {
  constexpr int64_t kLong = int64_t{kPrefetchLines} * 64;
  const bool lanes_are_rows = operand.k_stride == 1;
  Strips strips;
  if (operand.data == nullptr ||
      (!lanes_are_rows && operand.lane_stride != 1)) {
    return strips;
  }
  const int64_t size = SizeOf(operand.dtype);
  const int64_t num_rows = lanes_are_rows ? num_lanes : num_k;
  const int64_t row_bytes = (lanes_are_rows ? num_k : num_lanes) * size;
  const int64_t pitch =
      (lanes_are_rows ? operand.lane_stride : operand.k_stride) * size;
  strips.base = static_cast<const char*>(operand.data) +
                (lane * operand.lane_stride + k * operand.k_stride) * size;
  const bool along = 2 * row_bytes > kLong;
  strips.line_step = along ? 64 : pitch;
  strips.unit_step = along ? pitch : kPrefetchLines * pitch;
  strips.num_units = along ? num_rows : CeilDiv(num_rows, kPrefetchLines);
  strips.column_step = along ? kLong : 64;
  strips.num_columns = CeilDiv(row_bytes, strips.column_step);
  return strips;
}

// One task's part of the units of A's strips followed by B's.
class Ahead {
 public:
  Ahead() = default;
  Ahead(const Strips& a, const Strips& b, int64_t part, int64_t num_parts)
      : a_(a), b_(b) {
    const int64_t size = a.size() + b.size();
    at_ = size * part / num_parts;
    end_ = size * (part + 1) / num_parts;
  }

  int64_t left() const { return end_ - at_; }  // units

  // Gives a run of the tile the next units; false if none are left.
  bool AddTo(TileArgs& run) {
    if (at_ >= end_) return false;
    const bool in_a = at_ < a_.size();
    const Strips& strips = in_a ? a_ : b_;
    const int64_t index = in_a ? at_ : at_ - a_.size();
    const int64_t unit = index % strips.num_units;
    run.prefetch = strips.base + unit * strips.unit_step +
                   index / strips.num_units * strips.column_step;
    run.prefetch_line_step = strips.line_step;
    run.prefetch_step = strips.unit_step;
    const int64_t count = run.num_words / kPrefetchLines;
    at_ += std::max<int64_t>(1, std::min(count, strips.num_units - unit));
    return true;
  }

 private:
  Strips a_, b_;
  int64_t at_ = 0, end_ = 0;
};

}  // namespace espalier::gemm

#endif  // ESPALIER_OPS_GEMM_AHEAD_H_
