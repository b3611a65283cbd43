#include "espalier/io/safetensors_reader.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/text.h"
#include "espalier/runtime/check.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/guard.h"

namespace espalier {

namespace {

constexpr int64_t kLengthBytes = 8;

absl::Status Named(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

absl::Status Bad(const std::string& path, const SafetensorsEntry& entry,
                 const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": tensor ",
                                                  internal::Quote(entry.name),
                                                  ": ", status.message()));
}

// Bytes of the JSON, from the first 8 bytes of a file of `file_bytes`.
absl::StatusOr<int64_t> HeaderLength(absl::Span<const uint8_t> first,
                                     int64_t file_bytes) {
  uint64_t length = 0;
  for (size_t i = 0; i < static_cast<size_t>(kLengthBytes); ++i) {
    length |= static_cast<uint64_t>(first[i]) << (8 * i);
  }
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("claims a header of ", length, " bytes, expected at most ",
                     kMaxSafetensorsHeaderBytes));
  }
  const int64_t bytes = static_cast<int64_t>(length);
  if (bytes > file_bytes - kLengthBytes) {
    return absl::DataLossError(absl::StrCat("claims a header of ", bytes,
                                            " bytes, but the file has ",
                                            file_bytes, " bytes in all"));
  }
  return bytes;
}

// Shape and dtype of the Tensor that stands for the entry.
struct TensorForm {
  Shape shape;
  DType dtype = kU8;
};

absl::StatusOr<TensorForm> FormOf(const SafetensorsEntry& entry) {
  absl::InlinedVector<int64_t, 4> dims = entry.shape;
  const std::optional<DType> dtype = TensorDType(entry.dtype);
  const int64_t bits = BitsOf(entry.dtype);
  if (dims.size() > static_cast<size_t>(kMaxDims)) {
    return absl::UnimplementedError(
        absl::StrCat(dims.size(), " dims, at most ", kMaxDims));
  }
  // Strides take a dim of 0 for 1: a tensor without elements may still be too
  // large.
  int64_t extent = bits;
  for (const int64_t dim : dims) {
    if (__builtin_mul_overflow(extent, std::max<int64_t>(dim, 1), &extent)) {
      return absl::UnimplementedError(
          absl::StrCat("strides of ", Describe(entry), " overflow"));
    }
  }
  if (!dtype && dims.empty()) {
    if (bits != 8) dims.push_back(bits / 8);
  } else if (!dtype) {
    dims.back() = dims.back() * bits / 8;  // whole bytes, as validated
  }
  return TensorForm{Shape(absl::MakeConstSpan(dims.data(), dims.size())),
                    dtype.value_or(kU8)};
}

absl::Status CheckBool(absl::Span<const uint8_t> bytes) {
  if (std::all_of(bytes.begin(), bytes.end(),
                  [](uint8_t byte) { return byte <= 1; })) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("BOOL holds bytes beside 0 and 1");
}

bool IsAligned(const void* data, DType dtype) {
  return reinterpret_cast<uintptr_t>(data) %
             static_cast<uintptr_t>(SizeOf(dtype)) ==
         0;
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path,
                                                      ReadMode mode) {
  SafetensorsFile result;
  result.path_ = path;
  result.mode_ = mode;
  absl::StatusOr<internal::ReadableFile> file =
      internal::ReadableFile::Open(path);
  if (!file.ok()) return file.status();
  result.identity_ = file->identity();
  const int64_t file_bytes = file->size();
  if (file_bytes < kLengthBytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", file_bytes,
                     " bytes, a safetensors file has at least ", kLengthBytes));
  }
  uint8_t first[kLengthBytes];
  if (absl::Status status = file->ReadAt(0, first); !status.ok()) {
    return status;
  }
  const absl::StatusOr<int64_t> length = HeaderLength(first, file_bytes);
  if (!length.ok()) return Named(path, length.status());
  std::string json(static_cast<size_t>(*length), '\0');
  absl::Status status = file->ReadAt(
      kLengthBytes,
      absl::MakeSpan(reinterpret_cast<uint8_t*>(json.data()), json.size()));
  if (!status.ok()) return status;
  result.data_start_ = kLengthBytes + *length;
  absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(json, file_bytes - result.data_start_);
  if (!header.ok()) return Named(path, header.status());
  result.header_ = *std::move(header);
  if (mode == ReadMode::kMap) {
    absl::StatusOr<std::shared_ptr<FileMap>> map = FileMap::Open(path);
    if (!map.ok()) return map.status();
    result.map_ = *std::move(map);
    const absl::StatusOr<internal::FileIdentity> now =
        internal::IdentityOf(path);
    if (!now.ok()) return now.status();
    if (*now != result.identity_ || result.map_->size() != file_bytes) {
      return absl::DataLossError(
          absl::StrCat(path, ": changed while it was being opened"));
    }
  }
  return result;
}

absl::Span<const uint8_t> SafetensorsFile::Bytes(
    const SafetensorsEntry& entry) const {
  ESPALIER_CHECK(map_ != nullptr, path_, " is not mapped");
  return map_->bytes().subspan(static_cast<size_t>(data_start_ + entry.begin),
                               static_cast<size_t>(entry.num_bytes()));
}

absl::Status SafetensorsFile::CheckUnchanged(
    const internal::FileIdentity& now) const {
  // A mapped file that was replaced by another of its name is still there.
  if (now == identity_ || (map_ != nullptr && !now.SameFile(identity_))) {
    return absl::OkStatus();
  }
  return absl::DataLossError("the file changed since it was opened");
}

absl::StatusOr<Tensor> SafetensorsFile::LoadMapped(
    Device& device, const SafetensorsEntry& entry, const Shape& shape,
    DType dtype) const {
  const absl::StatusOr<internal::FileIdentity> now =
      internal::IdentityOf(path_);
  if (now.ok()) {
    if (absl::Status status = CheckUnchanged(*now); !status.ok()) {
      return status;
    }
  }
  const absl::Span<const uint8_t> bytes = Bytes(entry);
  if (dtype == kBool) {
    if (absl::Status status = CheckBool(bytes); !status.ok()) return status;
  }
  if (device.host_addressable() && !bytes.empty() &&
      IsAligned(bytes.data(), dtype)) {
    return Tensor::MapReadOnly(device, shape, dtype, bytes.data(), map_);
  }
  Tensor tensor = Tensor::Empty(device, shape, dtype);
  device.CopyFromHost(tensor.view().pointer, bytes.data(), tensor.num_bytes());
  return tensor;
}

absl::StatusOr<Tensor> SafetensorsFile::LoadRead(Device& device,
                                                 const SafetensorsEntry& entry,
                                                 const Shape& shape,
                                                 DType dtype) const {
  absl::StatusOr<internal::ReadableFile> file =
      internal::ReadableFile::Open(path_);
  if (!file.ok()) return file.status();
  absl::Status status = CheckUnchanged(file->identity());
  if (!status.ok()) return status;
  Device& host = device.host_addressable() ? device : device.context().cpu();
  Tensor tensor = Tensor::Empty(host, shape, dtype);
  const absl::Span<uint8_t> bytes(static_cast<uint8_t*>(tensor.view().pointer),
                                  static_cast<size_t>(entry.num_bytes()));
  status = file->ReadAt(data_start_ + entry.begin, bytes);
  if (status.ok() && dtype == kBool) status = CheckBool(bytes);
  if (!status.ok()) return status;
  return &host == &device ? tensor : tensor.CopyTo(device);
}

absl::StatusOr<Tensor> SafetensorsFile::Load(
    Device& device, const SafetensorsEntry& entry) const {
  const absl::StatusOr<TensorForm> form = FormOf(entry);
  if (!form.ok()) return Bad(path_, entry, form.status());
  absl::StatusOr<Tensor> tensor;
  absl::Status status = internal::Guard([&] {
    tensor = map_ != nullptr
                 ? LoadMapped(device, entry, form->shape, form->dtype)
                 : LoadRead(device, entry, form->shape, form->dtype);
  });
  if (status.ok()) status = tensor.status();
  if (!status.ok()) return Bad(path_, entry, status);
  return tensor;
}

absl::StatusOr<Tensor> SafetensorsFile::Load(Device& device,
                                             absl::string_view name) const {
  const SafetensorsEntry* entry = Find(name);
  if (entry == nullptr) {
    return absl::NotFoundError(
        absl::StrCat(path_, ": no tensor ", internal::Quote(name)));
  }
  return Load(device, *entry);
}

absl::StatusOr<Tensor> SafetensorsFile::LoadRows(Device& device,
                                                 const SafetensorsEntry& entry,
                                                 int64_t start,
                                                 int64_t count) const {
  if (entry.shape.empty() || start < 0 || count < 0 || start > entry.shape[0] ||
      count > entry.shape[0] - start) {
    return Bad(path_, entry,
               absl::InvalidArgumentError(absl::StrCat(
                   count, " rows from row ", start, " of ", Describe(entry))));
  }
  const int64_t row_bits =
      entry.shape[0] == 0 ? 0 : entry.num_bytes() * 8 / entry.shape[0];
  if (start * row_bits % 8 != 0 || count * row_bits % 8 != 0) {
    return Bad(path_, entry,
               absl::InvalidArgumentError(
                   absl::StrCat(count, " rows from row ", start, " of ",
                                Describe(entry), " do not fill whole bytes")));
  }
  SafetensorsEntry rows = entry;
  rows.shape[0] = count;
  rows.begin = entry.begin + start * row_bits / 8;
  rows.end = rows.begin + count * row_bits / 8;
  return Load(device, rows);
}

}  // namespace espalier
