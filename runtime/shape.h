#ifndef ESPALIER_RUNTIME_SHAPE_H_
#define ESPALIER_RUNTIME_SHAPE_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/types/span.h"

#include "espalier/runtime/dtype.h"

namespace espalier {

inline constexpr int kMaxDims = 8;

// Up to kMaxDims extents, each >= 0, outermost first. Fails INTERNAL on a
// negative extent, on too many, and where the product of the extents that are
// not 0 overflows int64 (an empty shape has strides, too).
class Shape {
 public:
  Shape() = default;  // a scalar: no dims, one element
  Shape(std::initializer_list<int64_t> dims)
      : Shape(absl::Span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(absl::Span<const int64_t> dims);

  int ndim() const { return ndim_; }
  // A negative index counts from the end.
  int64_t dim(int index) const;
  int64_t operator[](int index) const { return dim(index); }
  int64_t num_elements() const { return num_elements_; }
  absl::Span<const int64_t> dims() const {
    return absl::MakeConstSpan(dims_.data(), static_cast<size_t>(ndim_));
  }
  // The same extents with one replaced.
  Shape WithDim(int index, int64_t extent) const;

  friend bool operator==(const Shape& a, const Shape& b) {
    return a.dims() == b.dims();
  }

 private:
  std::array<int64_t, kMaxDims> dims_{};
  int ndim_ = 0;
  int64_t num_elements_ = 1;
};

// "[2, 3]"
std::string ToString(const Shape& shape);

// a * b and a + b; fail INTERNAL where int64 overflows. `what` names the
// quantity.
int64_t CheckedMul(int64_t a, int64_t b, const char* what);
int64_t CheckedAdd(int64_t a, int64_t b, const char* what);

// Bytes of a contiguous tensor, overflow-checked.
int64_t NumBytes(const Shape& shape, DType dtype);

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_SHAPE_H_
