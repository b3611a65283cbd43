// Sums over rows in a fixed order (ops/split.h): gradients of row vectors.
// Included once per instruction set, after ops/highway.h.

#if defined(ESPALIER_OPS_COLUMN_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ESPALIER_OPS_COLUMN_SUM_INL_H_
#undef ESPALIER_OPS_COLUMN_SUM_INL_H_
#else
#define ESPALIER_OPS_COLUMN_SUM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"

#include "espalier/ops/pointwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {

// blocks [NumBlocks(rows), width] = for each block of rows, zeros to which
// row(t, sums) adds row t's part. row may do its other work of the row, too.
template <class Row>
void SumBlocks(const Exec& exec, int64_t rows, int64_t width, float* blocks,
               const Row& row) {
  exec.pool.ParallelFor(NumBlocks(rows), 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      float* sums = blocks + block * width;
      std::fill(sums, sums + width, 0.0f);
      const int64_t last = std::min(rows, (block + 1) * kBlockRows);
      for (int64_t t = block * kBlockRows; t < last; ++t) row(t, sums);
    }
  });
}

// The same with blocks of `columns` where row(t, sums, access) also writes row
// t of [rows, width] elements at `out`, past the caches if it may.
template <class Row>
void SumAndWriteRows(const Exec& exec, int64_t rows, int64_t columns,
                     float* blocks, int64_t width, const void* out,
                     int64_t element_bytes, const Row& row) {
  const bool streams =
      out != nullptr && StreamsRows(out, rows, width, element_bytes);
  const bool native = RoundsNatively(exec);
  SumBlocks(exec, rows, columns, blocks, [&](int64_t t, float* sums) {
    if (streams) {
      row(t, sums, StreamAccess{{native}});
      hwy::FlushStream();
    } else {
      row(t, sums, WholeAccess{native});
    }
  });
}

// sum [width] = the first `width` columns of the blocks, added in order; the
// blocks are `stride` apart, 0 standing for width.
template <typename T>
void AddBlocks(const Exec& exec, int64_t rows, int64_t width,
               const float* blocks, T* sum, int64_t stride = 0) {
  if (stride == 0) stride = width;
  const int64_t num_blocks = NumBlocks(rows);
  constexpr int64_t kColumns = 256;
  exec.pool.ParallelFor(width, kColumns, [&](int64_t begin, int64_t end) {
    const F32Tag d;
    ForEachVector(end - begin, [&](int64_t i, auto io) {
      auto total = hn::Zero(d);
      for (int64_t block = 0; block < num_blocks; ++block) {
        total = hn::Add(total, io.Load(d, blocks + block * stride + begin + i));
      }
      io.Store(d, total, sum + begin + i);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#endif  // ESPALIER_OPS_COLUMN_SUM_INL_H_
