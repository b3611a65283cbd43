#include "espalier/runtime/shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "espalier/runtime/check.h"

namespace espalier {

Shape::Shape(absl::Span<const int64_t> dims) {
  ESPALIER_CHECK(dims.size() <= kMaxDims, "shape has ", dims.size(),
                 " dims, at most ", kMaxDims);
  ndim_ = static_cast<int>(dims.size());
  bool empty = false;
  for (int i = 0; i < ndim_; ++i) {
    const int64_t extent = dims[static_cast<size_t>(i)];
    ESPALIER_CHECK(extent >= 0, "dim ", i, " is ", extent);
    dims_[static_cast<size_t>(i)] = extent;
    empty = empty || extent == 0;
    num_elements_ = CheckedMul(num_elements_, std::max<int64_t>(extent, 1),
                               "number of elements");
  }
  if (empty) num_elements_ = 0;
}

int64_t Shape::dim(int index) const {
  const int i = index < 0 ? index + ndim_ : index;
  ESPALIER_CHECK(i >= 0 && i < ndim_, "dim ", index, " of ", ToString(*this));
  return dims_[static_cast<size_t>(i)];
}

Shape Shape::WithDim(int index, int64_t extent) const {
  const int i = index < 0 ? index + ndim_ : index;
  ESPALIER_CHECK(i >= 0 && i < ndim_, "dim ", index, " of ", ToString(*this));
  std::array<int64_t, kMaxDims> dims = dims_;
  dims[static_cast<size_t>(i)] = extent;
  return Shape(absl::MakeConstSpan(dims.data(), static_cast<size_t>(ndim_)));
}

std::string ToString(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape.dims(), ", "), "]");
}

int64_t CheckedMul(int64_t a, int64_t b, const char* what) {
  int64_t product = 0;
  ESPALIER_CHECK(!__builtin_mul_overflow(a, b, &product), what, ": ", a, " * ",
                 b, " overflows int64");
  return product;
}

int64_t CheckedAdd(int64_t a, int64_t b, const char* what) {
  int64_t sum = 0;
  ESPALIER_CHECK(!__builtin_add_overflow(a, b, &sum), what, ": ", a, " + ", b,
                 " overflows int64");
  return sum;
}

int64_t NumBytes(const Shape& shape, DType dtype) {
  return CheckedMul(shape.num_elements(), SizeOf(dtype), "bytes");
}

}  // namespace espalier
