#ifndef ESPALIER_OPS_SHORT_CONV_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_SHORT_CONV_INTERNAL_KERNELS_H_

#include <algorithm>
#include <cstdint>

#include "espalier/ops/cu_seqlens.h"
#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::short_conv {

inline constexpr int kMaxTaps = 8;

// Tokens [begin, end), number `index` of the batch.
struct Document {
  int64_t index = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// The document of token t.
inline Document DocumentOf(const std::vector<int32_t>& at, int64_t t) {
  const auto next = std::upper_bound(at.begin(), at.end(), t);
  return {next - at.begin() - 1, *(next - 1), *next};
}

// Row `position` of a document, counted from its first token: from -(K - 1) on
// its initial state. Null: zeros.
template <typename T>
const T* RowAt(const View& x, const View& initial, int64_t num_taps,
               const Document& document, int64_t position) {
  const int64_t width = x.dim(1);
  if (position >= 0) {
    return x.data<const T>() + (document.begin + position) * width;
  }
  if (!initial) return nullptr;
  const int64_t row = document.index * (num_taps - 1) + num_taps - 1 + position;
  return initial.data<const T>() + row * width;
}

struct ForwardArgs {
  View x;        // [T, C]
  View weight;   // [C, 1, K] or [C, K], x's dtype or f32
  View initial;  // [documents, K - 1, C], may be absent
  CuSeqlens cu_seqlens;
  int64_t num_taps;
  bool silu;
  View y;            // [T, C]
  View final_state;  // as initial, may be absent
  View taps;         // [K, C] f32 scratch; unused for f64
};

struct BackwardArgs {
  View dy;      // [T, C]
  View dfinal;  // [documents, K - 1, C], may be absent
  View x, weight, initial;
  CuSeqlens cu_seqlens;
  int64_t num_taps;
  bool silu;
  View dx, dweight, dinitial;  // each may be absent
  View taps;                   // [K, C] f32 scratch; unused for f64
  View block_sums;  // [NumBlocks(T), K, C] f32, with dweight; unused for f64
};

void ForwardRef(const ForwardArgs& args, const Exec& exec);
void BackwardRef(const BackwardArgs& args, const Exec& exec);
// T: float, BFloat16.
template <typename T>
void ForwardCpu(const ForwardArgs& args, const Exec& exec);
template <typename T>
void BackwardCpu(const BackwardArgs& args, const Exec& exec);

}  // namespace espalier::short_conv

#endif  // ESPALIER_OPS_SHORT_CONV_INTERNAL_KERNELS_H_
