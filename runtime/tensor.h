#ifndef ESPALIER_RUNTIME_TENSOR_H_
#define ESPALIER_RUNTIME_TENSOR_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"

#include "espalier/runtime/check.h"
#include "espalier/runtime/device.h"
#include "espalier/runtime/dtype.h"
#include "espalier/runtime/shape.h"
#include "espalier/runtime/view.h"

namespace espalier {

enum class StorageKind : uint8_t {
  kHeap,     // from the device's allocator
  kFileMap,  // read-only pages of a mapped file
  kHost,     // memory the host application lent
};

namespace internal {
struct Storage;
}

// A handle on shared storage with shape, strides, dtype and device. Copying
// copies the handle. A default-made Tensor is absent: only operator bool,
// assignment and view() are legal on it.
// Thread-compatible; the storage's reference count is thread-safe.
class Tensor {
 public:
  Tensor() = default;

  // Uninitialised, contiguous, counted under device.memory_tag(). Fails with
  // RESOURCE_EXHAUSTED.
  static Tensor Empty(Device& device, const Shape& shape, DType dtype);
  static Tensor Zeros(Device& device, const Shape& shape, DType dtype);
  // Memory owned by someone else, which `owner` keeps alive (may be null when
  // the lender outlives the tensor). Host-addressable device only.
  static Tensor Borrow(Device& device, const Shape& shape, DType dtype,
                       void* data, std::shared_ptr<void> owner);
  // As Borrow for read-only file pages: mutable_data() fails.
  static Tensor MapReadOnly(Device& device, const Shape& shape, DType dtype,
                            const void* data, std::shared_ptr<void> owner);
  // Copies host values; values.size() must equal the number of elements.
  template <typename T>
  static Tensor FromHost(Device& device, const Shape& shape,
                         absl::Span<const T> values);

  explicit operator bool() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int ndim() const { return shape_.ndim(); }
  int64_t dim(int index) const { return shape_.dim(index); }
  int64_t stride(int index) const;
  int64_t num_elements() const { return shape_.num_elements(); }
  int64_t num_bytes() const { return NumBytes(shape_, dtype_); }
  DType dtype() const { return dtype_; }
  Device& device() const;
  StorageKind storage_kind() const;
  bool read_only() const;
  bool is_contiguous() const;
  // Whether two tensors are views of one storage.
  bool SharesStorage(const Tensor& other) const;
  // Number of handles on the storage.
  int64_t use_count() const { return storage_.use_count(); }
  // Identifies the storage, for counting bytes once.
  const void* storage_id() const { return storage_.get(); }
  // Bytes of the whole storage.
  int64_t storage_bytes() const;

  // Host access: fails INTERNAL when the device is not host-addressable, when
  // T is not the dtype, and, for mutable_data, on read-only storage.
  template <typename T>
  const T* data() const {
    CheckHostAccess(DTypeOf<T>::value, /*write=*/false);
    return static_cast<const T*>(pointer());
  }
  template <typename T>
  T* mutable_data() const {
    CheckHostAccess(DTypeOf<T>::value, /*write=*/true);
    return static_cast<T*>(pointer());
  }

  // Views share storage. `count` elements of `dim` from `start`.
  Tensor Slice(int dim, int64_t start, int64_t count) const;
  Tensor Transpose(int dim0, int dim1) const;
  // Contiguous only; one extent may be -1.
  Tensor Reshape(absl::Span<const int64_t> dims) const;
  Tensor Reshape(std::initializer_list<int64_t> dims) const {
    return Reshape(absl::MakeConstSpan(dims.begin(), dims.size()));
  }

  // A contiguous copy on the cpu device of the same context; waits for the
  // device.
  Tensor ToHost() const;
  // A contiguous copy on `device`, of the same context; of any strides.
  Tensor CopyTo(Device& device) const;
  // Overwrites this contiguous tensor with a contiguous one of the same shape
  // and dtype, from any device of the context. Two views of one storage must not
  // overlap in part. On the meta device there is nothing to copy.
  void CopyFrom(const Tensor& source) const;

  // For moving a storage away and back. The whole storage: u8 [storage_bytes].
  Tensor AsBytes() const;
  // Shape, strides, offset and dtype without memory: absent; beside what is
  // legal on absent tensors, OnBytes.
  Tensor WithoutBytes() const;
  // This view on other memory: `bytes` is u8 and has the size of the storage
  // that the view was made on.
  Tensor OnBytes(const Tensor& bytes) const;
  // Expires with the storage, and until then tells it from a later one at the
  // same address.
  std::weak_ptr<const void> weak_storage() const { return storage_; }

  // What kernels are given; an absent tensor gives an empty view.
  View view() const;

 private:
  Tensor(std::shared_ptr<internal::Storage> storage, const Shape& shape,
         DType dtype);
  void CheckHostAccess(DType dtype, bool write) const;
  void* pointer() const;

  std::shared_ptr<internal::Storage> storage_;
  Shape shape_;
  std::array<int64_t, kMaxDims> strides_{};  // in elements
  int64_t offset_ = 0;                       // in elements
  DType dtype_ = kF32;
};

Tensor EmptyLike(const Tensor& tensor);
Tensor ZerosLike(const Tensor& tensor);

// "f32 [2, 3] on cpu", or "absent".
std::string ToString(const Tensor& tensor);

// The values of a host copy, converted to double, in row-major order.
std::vector<double> ToDoubles(const Tensor& tensor);

namespace internal {
Tensor FromHostBytes(Device& device, const Shape& shape, DType dtype,
                     const void* data, int64_t num_elements);
}  // namespace internal

template <typename T>
Tensor Tensor::FromHost(Device& device, const Shape& shape,
                        absl::Span<const T> values) {
  return internal::FromHostBytes(device, shape, DTypeOf<T>::value,
                                 values.data(),
                                 static_cast<int64_t>(values.size()));
}

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_TENSOR_H_
