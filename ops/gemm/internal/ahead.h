#ifndef ESPALIER_OPS_GEMM_INTERNAL_AHEAD_H_
#define ESPALIER_OPS_GEMM_INTERNAL_AHEAD_H_

#include <algorithm>
#include <cstdint>

#include "espalier/ops/gemm/tile.h"

// Packing reads memory in a pattern that the hardware does not foresee, so the
// register tiles, which leave the memory idle, fetch what is packed next.
namespace espalier::gemm {

// A rectangle of an operand in memory, as rows of up to kStripBytes.
struct Strips {
  static constexpr int64_t kStripBytes = kPrefetchLines * 64;

  const char* base = nullptr;
  int64_t pitch = 0;  // bytes between rows
  int64_t num_rows = 0;
  int64_t num_strips = 0;  // side by side

  int64_t size() const { return num_rows * num_strips; }
};

inline Strips StripsOf(const Operand& operand, int64_t lane, int64_t num_lanes,
                       int64_t k, int64_t num_k) {
  Strips strips;
  const int64_t size = SizeOf(operand.dtype);
  int64_t row_bytes = 0;
  if (operand.data == nullptr) return strips;
  if (operand.k_stride == 1) {
    strips.num_rows = num_lanes;
    strips.pitch = operand.lane_stride * size;
    row_bytes = num_k * size;
  } else if (operand.lane_stride == 1) {
    strips.num_rows = num_k;
    strips.pitch = operand.k_stride * size;
    row_bytes = num_lanes * size;
  }
  strips.num_strips =
      (row_bytes + Strips::kStripBytes - 1) / Strips::kStripBytes;
  strips.base = static_cast<const char*>(operand.data) +
                (lane * operand.lane_stride + k * operand.k_stride) * size;
  return strips;
}

// One task's part of what is to be fetched: rows [begin, end) of A's strips
// followed by B's.
class Ahead {
 public:
  Ahead() = default;
  Ahead(const Strips& a, const Strips& b, int64_t part, int64_t num_parts)
      : a_(a), b_(b) {
    const int64_t size = a.size() + b.size();
    at_ = size * part / num_parts;
    end_ = size * (part + 1) / num_parts;
  }

  // Gives a run of the tile the next rows, if any are left.
  void AddTo(TileArgs& run) {
    if (at_ >= end_) return;
    const bool in_a = at_ < a_.size();
    const Strips& strips = in_a ? a_ : b_;
    const int64_t index = in_a ? at_ : at_ - a_.size();
    const int64_t row = index % strips.num_rows;
    run.prefetch = strips.base + row * strips.pitch +
                   index / strips.num_rows * Strips::kStripBytes;
    run.prefetch_step = strips.pitch;
    const int64_t rows = run.num_words / kPrefetchLines;
    at_ += std::max<int64_t>(1, std::min(rows, strips.num_rows - row));
  }

 private:
  Strips a_, b_;
  int64_t at_ = 0, end_ = 0;
};

}  // namespace espalier::gemm

#endif  // ESPALIER_OPS_GEMM_INTERNAL_AHEAD_H_
