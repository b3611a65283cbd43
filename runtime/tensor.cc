#include "espalier/runtime/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/runtime/context.h"
#include "espalier/runtime/internal/strided_copy.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace internal {

// Shared by all views of one allocation; gives the memory back at the end.
struct Storage {
  Storage(Device& device, int64_t bytes)
      : device(device),
        data(device.allocator().Allocate(bytes, device.memory_tag(),
                                         device.compute_stream())),
        bytes(bytes),
        kind(StorageKind::kHeap) {}
  Storage(Device& device, void* data, int64_t bytes, StorageKind kind,
          std::shared_ptr<void> owner)
      : device(device),
        data(data),
        bytes(bytes),
        kind(kind),
        owner(std::move(owner)) {}
  ~Storage() {
    if (kind == StorageKind::kHeap) device.allocator().Free(data);
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Device& device;
  void* const data;
  const int64_t bytes;
  const StorageKind kind;
  const std::shared_ptr<void> owner;
};

Tensor FromHostBytes(Device& device, const Shape& shape, DType dtype,
                     const void* data, int64_t num_elements) {
  ESPALIER_CHECK(num_elements == shape.num_elements(), num_elements,
                 " values for ", ToString(shape));
  Tensor tensor = Tensor::Empty(device, shape, dtype);
  device.CopyFromHost(tensor.view().pointer, data, tensor.num_bytes());
  return tensor;
}

}  // namespace internal

namespace {

int NormalDim(int index, const Shape& shape) {
  const int i = index < 0 ? index + shape.ndim() : index;
  ESPALIER_CHECK(i >= 0 && i < shape.ndim(), "dim ", index, " of ",
                 ToString(shape));
  return i;
}

constexpr Kernel<internal::PackArgs> kPack[] = {
    {kCpu, kF64, internal::PackCpu},  {kCpu, kF32, internal::PackCpu},
    {kCpu, kBF16, internal::PackCpu}, {kCpu, kF16, internal::PackCpu},
    {kCpu, kI64, internal::PackCpu},  {kCpu, kI32, internal::PackCpu},
    {kCpu, kU8, internal::PackCpu},   {kCpu, kBool, internal::PackCpu},
};

// What lent memory of no elements points at: a null pointer would read as an
// absent tensor.
void* NothingIfNull(const void* data) {
  static constexpr char kNothing = 0;
  return const_cast<void*>(data != nullptr ? data : &kNothing);
}

double ElementToDouble(const View& view, int64_t offset) {
  switch (view.dtype) {
    case kF64:
      return view.data<double>()[offset];
    case kF32:
      return view.data<float>()[offset];
    case kBF16:
      return static_cast<float>(view.data<BFloat16>()[offset]);
    case kF16:
      return static_cast<float>(view.data<Float16>()[offset]);
    case kI64:
      return static_cast<double>(view.data<int64_t>()[offset]);
    case kI32:
      return view.data<int32_t>()[offset];
    case kU8:
    case kBool:
      return view.data<uint8_t>()[offset];
  }
  return 0;
}

}  // namespace

Tensor::Tensor(std::shared_ptr<internal::Storage> storage, const Shape& shape,
               DType dtype)
    : storage_(std::move(storage)), shape_(shape), dtype_(dtype) {
  int64_t stride = 1;
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    strides_[static_cast<size_t>(d)] = stride;
    stride *= std::max<int64_t>(shape.dim(d), 1);
  }
}

Tensor Tensor::Empty(Device& device, const Shape& shape, DType dtype) {
  return Tensor(
      std::make_shared<internal::Storage>(device, NumBytes(shape, dtype)),
      shape, dtype);
}

Tensor Tensor::Zeros(Device& device, const Shape& shape, DType dtype) {
  Tensor tensor = Empty(device, shape, dtype);
  const int64_t bytes = tensor.num_bytes();
  void* const data = tensor.pointer();
  const Access access{data, bytes, /*write=*/true};
  device.compute_stream().Enqueue(
      "zeros", absl::MakeConstSpan(&access, 1), [data, bytes] {
        if (bytes > 0) std::memset(data, 0, static_cast<size_t>(bytes));
      });
  return tensor;
}

Tensor Tensor::Borrow(Device& device, const Shape& shape, DType dtype,
                      void* data, std::shared_ptr<void> owner) {
  ESPALIER_CHECK(device.host_addressable(), "borrowed memory on ",
                 ToString(device.type()));
  ESPALIER_CHECK(data != nullptr || shape.num_elements() == 0,
                 "borrowed memory is null");
  return Tensor(std::make_shared<internal::Storage>(
                    device, NothingIfNull(data), NumBytes(shape, dtype),
                    StorageKind::kHost, std::move(owner)),
                shape, dtype);
}

Tensor Tensor::MapReadOnly(Device& device, const Shape& shape, DType dtype,
                           const void* data, std::shared_ptr<void> owner) {
  ESPALIER_CHECK(device.host_addressable(), "mapped memory on ",
                 ToString(device.type()));
  ESPALIER_CHECK(data != nullptr || shape.num_elements() == 0,
                 "mapped memory is null");
  return Tensor(std::make_shared<internal::Storage>(
                    device, NothingIfNull(data), NumBytes(shape, dtype),
                    StorageKind::kFileMap, std::move(owner)),
                shape, dtype);
}

Device& Tensor::device() const {
  ESPALIER_CHECK(storage_ != nullptr, "tensor is absent");
  return storage_->device;
}

StorageKind Tensor::storage_kind() const {
  ESPALIER_CHECK(storage_ != nullptr, "tensor is absent");
  return storage_->kind;
}

int64_t Tensor::storage_bytes() const {
  ESPALIER_CHECK(storage_ != nullptr, "tensor is absent");
  return storage_->bytes;
}

bool Tensor::read_only() const {
  return storage_kind() == StorageKind::kFileMap;
}

int64_t Tensor::stride(int index) const {
  return strides_[static_cast<size_t>(NormalDim(index, shape_))];
}

bool Tensor::is_contiguous() const {
  int64_t expected = 1;
  for (int d = ndim() - 1; d >= 0; --d) {
    if (dim(d) != 1 && stride(d) != expected) return false;
    expected *= std::max<int64_t>(dim(d), 1);
  }
  return true;
}

bool Tensor::SharesStorage(const Tensor& other) const {
  return storage_ != nullptr && storage_ == other.storage_;
}

void* Tensor::pointer() const {
  return static_cast<char*>(storage_->data) + offset_ * SizeOf(dtype_);
}

void Tensor::CheckHostAccess(DType dtype, bool write) const {
  ESPALIER_CHECK(storage_ != nullptr, "tensor is absent");
  ESPALIER_CHECK(storage_->device.host_addressable(),
                 "host access to memory of ", ToString(storage_->device.type()),
                 "; copy with ToHost()");
  ESPALIER_CHECK(dtype == dtype_, "access as ", ToString(dtype), " to ",
                 ToString(*this));
  ESPALIER_CHECK(!write || !read_only(), "write access to mapped file pages");
}

Tensor Tensor::Slice(int dim, int64_t start, int64_t count) const {
  const int d = NormalDim(dim, shape_);
  ESPALIER_CHECK(start >= 0 && count >= 0 && start <= this->dim(d) - count,
                 "slice [", start, ", +", count, ") of dim ", d, " of ",
                 ToString(shape_));
  Tensor result = *this;
  result.shape_ = shape_.WithDim(d, count);
  if (result.num_elements() > 0) result.offset_ += start * stride(d);
  return result;
}

Tensor Tensor::Transpose(int dim0, int dim1) const {
  const int a = NormalDim(dim0, shape_);
  const int b = NormalDim(dim1, shape_);
  Tensor result = *this;
  std::vector<int64_t> extents(shape_.dims().begin(), shape_.dims().end());
  std::swap(extents[static_cast<size_t>(a)], extents[static_cast<size_t>(b)]);
  result.shape_ = Shape(extents);
  std::swap(result.strides_[static_cast<size_t>(a)],
            result.strides_[static_cast<size_t>(b)]);
  return result;
}

Tensor Tensor::Reshape(absl::Span<const int64_t> dims) const {
  ESPALIER_CHECK(is_contiguous(), "reshape of a strided view of ",
                 ToString(shape_));
  std::vector<int64_t> extents(dims.begin(), dims.end());
  int64_t known = 1;
  int open = -1;
  for (size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] != -1) {
      known = CheckedMul(known, extents[i], "reshape");
      continue;
    }
    ESPALIER_CHECK(open < 0, "reshape with two open dims");
    open = static_cast<int>(i);
  }
  if (open >= 0) {
    ESPALIER_CHECK(known > 0 && num_elements() % known == 0, "reshape of ",
                   ToString(shape_), " by ", known);
    extents[static_cast<size_t>(open)] = num_elements() / known;
  }
  const Shape shape(extents);
  ESPALIER_CHECK(shape.num_elements() == num_elements(), "reshape of ",
                 ToString(shape_), " to ", ToString(shape));
  Tensor result(storage_, shape, dtype_);
  result.offset_ = offset_;
  return result;
}

Tensor Tensor::ToHost() const { return CopyTo(device().context().cpu()); }

Tensor Tensor::CopyTo(Device& target) const {
  if (!is_contiguous()) {
    const Tensor packed = Empty(device(), shape_, dtype_);
    Launch("pack", kPack, *this, internal::PackArgs{view(), packed.view()},
           {this}, {&packed});
    return &target == &device() ? packed : packed.CopyTo(target);
  }
  Tensor result = Empty(target, shape_, dtype_);
  result.CopyFrom(*this);
  return result;
}

void Tensor::CopyFrom(const Tensor& source) const {
  ESPALIER_CHECK(source.shape_ == shape_ && source.dtype_ == dtype_, "copy of ",
                 ToString(source), " to ", ToString(*this));
  ESPALIER_CHECK(is_contiguous() && source.is_contiguous(),
                 "copy between strided views");
  ESPALIER_CHECK(!read_only(), "copy to mapped file pages");
  if (SharesStorage(source)) {
    if (offset_ == source.offset_) return;
    ESPALIER_CHECK(std::abs(offset_ - source.offset_) >= num_elements(),
                   "copy between overlapping views of ", ToString(shape_));
  }
  Device& to = device();
  Device& from = source.device();
  if (to.type() == kMeta) return;
  if (from.host_addressable()) {
    to.CopyFromHost(pointer(), source.pointer(), num_bytes());
  } else if (to.host_addressable()) {
    from.CopyToHost(pointer(), source.pointer(), num_bytes());
  } else {
    const Tensor host = source.ToHost();
    to.CopyFromHost(pointer(), host.pointer(), num_bytes());
  }
}

Tensor Tensor::AsBytes() const {
  return Tensor(storage_, {storage_bytes()}, kU8);
}

Tensor Tensor::WithoutBytes() const {
  Tensor result = *this;
  result.storage_ = nullptr;
  return result;
}

Tensor Tensor::OnBytes(const Tensor& bytes) const {
  int64_t end = num_elements() == 0 ? 0 : offset_ + 1;
  for (int d = 0; end > 0 && d < ndim(); ++d) end += (dim(d) - 1) * stride(d);
  ESPALIER_CHECK(bytes.dtype_ == kU8 && bytes.offset_ == 0 &&
                     bytes.num_bytes() == bytes.storage_bytes() &&
                     end * SizeOf(dtype_) <= bytes.num_bytes(),
                 ToString(shape_), " of ", ToString(dtype_), " on ",
                 ToString(bytes));
  Tensor result = *this;
  result.storage_ = bytes.storage_;
  return result;
}

View Tensor::view() const {
  View view;
  if (storage_ == nullptr) return view;
  view.pointer = pointer();
  view.dtype = dtype_;
  view.ndim = ndim();
  for (int d = 0; d < ndim(); ++d) {
    view.shape[d] = dim(d);
    view.strides[d] = strides_[static_cast<size_t>(d)];
  }
  return view;
}

Tensor EmptyLike(const Tensor& tensor) {
  return Tensor::Empty(tensor.device(), tensor.shape(), tensor.dtype());
}

Tensor ZerosLike(const Tensor& tensor) {
  return Tensor::Zeros(tensor.device(), tensor.shape(), tensor.dtype());
}

std::string ToString(const Tensor& tensor) {
  if (!tensor) return "absent";
  return absl::StrCat(ToString(tensor.dtype()), " ", ToString(tensor.shape()),
                      " on ", ToString(tensor.device().type()));
}

std::vector<double> ToDoubles(const Tensor& tensor) {
  const Tensor host = tensor.ToHost();
  const View view = host.view();
  std::vector<double> values;
  values.reserve(static_cast<size_t>(host.num_elements()));
  for (int64_t i = 0; i < host.num_elements(); ++i) {
    values.push_back(ElementToDouble(view, i));
  }
  return values;
}

}  // namespace espalier
