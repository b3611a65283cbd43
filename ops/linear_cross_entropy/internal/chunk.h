#ifndef ESPALIER_OPS_LINEAR_CROSS_ENTROPY_INTERNAL_CHUNK_H_
#define ESPALIER_OPS_LINEAR_CROSS_ENTROPY_INTERNAL_CHUNK_H_

#include <cstdint>
#include <cstring>

#include "espalier/ops/linear_cross_entropy/internal/kernels.h"

// What the forward and the backward pass share: both work on the rows of
// tokens that count, which lie one behind the other.
namespace espalier::linear_cross_entropy {

template <typename T>
T* PartOf(const View& workspace, int64_t offset) {
  return reinterpret_cast<T*>(workspace.data<char>() + offset);
}

inline void* RowOf(const View& matrix, int64_t row) {
  return matrix.data<char>() + row * matrix.dim(1) * SizeOf(matrix.dtype);
}

// Writes the token of every row; returns the number of rows.
inline int64_t ListActive(const View& labels, int64_t ignore_index,
                          int32_t* active) {
  int64_t count = 0;
  for (int64_t t = 0; t < labels.dim(0); ++t) {
    if (LabelAt(labels, t) == ignore_index) continue;
    active[count++] = static_cast<int32_t>(t);
  }
  return count;
}

// x of the tokens active[0, count): where it lies, or gathered into `rows`.
inline const void* GatherRows(const View& x, const int32_t* active,
                              int64_t count, void* rows) {
  if (active[count - 1] - active[0] + 1 == count) return RowOf(x, active[0]);
  const int64_t row_bytes = x.dim(1) * SizeOf(x.dtype);
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(static_cast<char*>(rows) + i * row_bytes, RowOf(x, active[i]),
                static_cast<size_t>(row_bytes));
  }
  return rows;
}

}  // namespace espalier::linear_cross_entropy

#endif  // ESPALIER_OPS_LINEAR_CROSS_ENTROPY_INTERNAL_CHUNK_H_
