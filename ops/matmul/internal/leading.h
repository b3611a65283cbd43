#ifndef ESPALIER_OPS_MATMUL_INTERNAL_LEADING_H_
#define ESPALIER_OPS_MATMUL_INTERNAL_LEADING_H_

#include <cstdint>

#include "espalier/runtime/view.h"

namespace espalier::matmul {

// The matrices of a view [.., rows, cols], in row-major order of its leading
// dims.
inline int64_t NumMatrices(const View& view) {
  int64_t n = 1;
  for (int d = 0; d + 2 < view.ndim; ++d) n *= view.shape[d];
  return n;
}

// Elements from the start of the view to a matrix; a view without leading dims
// has one, which every index means.
inline int64_t MatrixOffset(const View& view, int64_t index) {
  int64_t offset = 0;
  for (int d = view.ndim - 3; d >= 0; --d) {
    offset += index % view.shape[d] * view.strides[d];
    index /= view.shape[d];
  }
  return offset;
}

}  // namespace espalier::matmul

#endif  // ESPALIER_OPS_MATMUL_INTERNAL_LEADING_H_
