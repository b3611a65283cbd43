#ifndef ESPALIER_RUNTIME_VIEW_H_
#define ESPALIER_RUNTIME_VIEW_H_

#include <cstdint>

#include "espalier/runtime/dtype.h"
#include "espalier/runtime/shape.h"

namespace espalier {

// What a kernel sees of a Tensor: raw device memory, extents and strides, no
// ownership and no checks. Made by Tensor::view(); an empty one (null data)
// stands for an optional tensor that is absent.
struct View {
  void* pointer = nullptr;
  DType dtype = kF32;
  int ndim = 0;
  int64_t shape[kMaxDims] = {};
  int64_t strides[kMaxDims] = {};  // in elements

  explicit operator bool() const { return pointer != nullptr; }
  template <typename T>
  T* data() const {
    return static_cast<T*>(pointer);
  }
  // Negative indices count from the end.
  int64_t dim(int i) const { return shape[i < 0 ? i + ndim : i]; }
  int64_t stride(int i) const { return strides[i < 0 ? i + ndim : i]; }
  int64_t num_elements() const {
    int64_t n = 1;
    for (int i = 0; i < ndim; ++i) n *= shape[i];
    return n;
  }
  // Product of all dims but the last: the rows of a row-wise kernel.
  int64_t num_rows() const {
    int64_t n = 1;
    for (int i = 0; i + 1 < ndim; ++i) n *= shape[i];
    return n;
  }
};

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_VIEW_H_
