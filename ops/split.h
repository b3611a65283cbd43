#ifndef ESPALIER_OPS_SPLIT_H_
#define ESPALIER_OPS_SPLIT_H_

#include <algorithm>
#include <cstdint>

#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/dtype.h"

namespace espalier {

// How kernels cut their work, by sizes alone: the same pieces, hence the same
// bits, at every thread count.

// Elements of one chunk of an element-by-element kernel. A multiple of a cache
// line, so that chunks of an aligned tensor are aligned.
inline constexpr int64_t kPointwiseGrain = int64_t{1} << 15;

// Rows of one chunk of a row-wise kernel.
constexpr int64_t RowGrain(int64_t width) {
  return std::max<int64_t>(1, kPointwiseGrain / std::max<int64_t>(1, width));
}

// Sums over rows (gradients of row vectors) run in sequence inside a block of
// rows; the blocks are then added in order.
inline constexpr int64_t kBlockRows = 64;
constexpr int64_t NumBlocks(int64_t rows) { return CeilDiv(rows, kBlockRows); }

// Outputs of this many bytes and more are written past the caches: they would
// not be there any more when the next op reads them.
inline constexpr int64_t kStreamBytes = int64_t{16} << 20;

// The dtype in which sums, statistics and coefficients of a tensor are kept.
constexpr DType WideOf(DType dtype) { return dtype == kF64 ? kF64 : kF32; }

}  // namespace espalier

#endif  // ESPALIER_OPS_SPLIT_H_
