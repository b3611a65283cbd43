#include "espalier/io/safetensors_reader.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/map_cache.h"
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

absl::string_view ToString(ReadMode mode) {
  switch (mode) {
    case ReadMode::kMap:
      return "map";
    case ReadMode::kRead:
      return "read";
    case ReadMode::kAuto:
      return "auto";
  }
  return "unknown";
}

absl::StatusOr<internal::ReadableFile> SafetensorsFile::OpenBytes() const {
  return remote_ != nullptr ? remote_->Open(name_)
                            : internal::ReadableFile::Open(path_);
}

absl::Status SafetensorsFile::ReadHeader() {
  const absl::StatusOr<internal::ReadableFile> file = OpenBytes();
  if (!file.ok()) return file.status();
  identity_ = file->identity();
  const int64_t file_bytes = file->size();
  if (file_bytes < kLengthBytes) {
    return absl::DataLossError(
        absl::StrCat(path_, ": ", file_bytes,
                     " bytes, a safetensors file has at least ", kLengthBytes));
  }
  uint8_t first[kLengthBytes];
  if (absl::Status status = file->ReadAt(0, first); !status.ok()) {
    return status;
  }
  const absl::StatusOr<int64_t> length = HeaderLength(first, file_bytes);
  if (!length.ok()) return Named(path_, length.status());
  std::string json(static_cast<size_t>(*length), '\0');
  absl::Status status = file->ReadAt(
      kLengthBytes,
      absl::MakeSpan(reinterpret_cast<uint8_t*>(json.data()), json.size()));
  if (!status.ok()) return status;
  data_start_ = kLengthBytes + *length;
  absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(json, file_bytes - data_start_);
  if (!header.ok()) return Named(path_, header.status());
  header_ = *std::move(header);
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(
    const std::string& path, ReadMode mode,
    std::shared_ptr<internal::MapCache> maps) {
  SafetensorsFile result;
  result.path_ = path;
  if (absl::Status status = result.ReadHeader(); !status.ok()) return status;
  result.mode_ = mode != ReadMode::kAuto        ? mode
                 : internal::IsRemoteFile(path) ? ReadMode::kRead
                                                : ReadMode::kMap;
  if (result.mode_ == ReadMode::kMap) result.maps_ = std::move(maps);
  return result;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(
    std::shared_ptr<const Folder> folder, const std::string& name,
    ReadMode mode, std::shared_ptr<internal::MapCache> maps) {
  if (folder->is_local()) {
    return Open(folder->PathOf(name), mode, std::move(maps));
  }
  SafetensorsFile result;
  result.path_ = folder->PathOf(name);
  result.remote_ = std::move(folder);
  result.name_ = name;
  result.mode_ = ReadMode::kRead;
  if (absl::Status status = result.ReadHeader(); !status.ok()) return status;
  return result;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path,
                                                      ReadMode mode) {
  absl::StatusOr<SafetensorsFile> result =
      Open(path, mode, std::make_shared<internal::MapCache>(1));
  if (result.ok() && result->maps_ != nullptr) {
    const absl::StatusOr<std::shared_ptr<FileMap>> map = result->Map();
    if (!map.ok()) return map.status();
  }
  return result;
}

void SafetensorsFile::DropEntries() {
  header_.entries = {};
  header_.by_name = {};
}

absl::StatusOr<std::shared_ptr<FileMap>> SafetensorsFile::Map() const {
  if (maps_ == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": opened for reading, not mapped"));
  }
  return maps_->Get(path_, identity_);
}

absl::Status SafetensorsFile::CheckUnchanged(
    const internal::FileIdentity& now) const {
  // A mapped file that was replaced by another of its name is still there.
  if (now == identity_ || (maps_ != nullptr && !now.SameFile(identity_))) {
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
  absl::StatusOr<std::shared_ptr<FileMap>> map = Map();
  if (!map.ok()) return map.status();
  const absl::Span<const uint8_t> bytes =
      (*map)->bytes().subspan(static_cast<size_t>(data_start_ + entry.begin),
                              static_cast<size_t>(entry.num_bytes()));
  if (dtype == kBool) {
    if (absl::Status status = CheckBool(bytes); !status.ok()) return status;
  }
  if (device.host_addressable() && !bytes.empty() &&
      IsAligned(bytes.data(), dtype)) {
    return Tensor::MapReadOnly(device, shape, dtype, bytes.data(),
                               *std::move(map));
  }
  Tensor tensor = Tensor::Empty(device, shape, dtype);
  device.CopyFromHost(tensor.view().pointer, bytes.data(), tensor.num_bytes());
  return tensor;
}

absl::StatusOr<Tensor> SafetensorsFile::LoadRead(Device& device,
                                                 const SafetensorsEntry& entry,
                                                 const Shape& shape,
                                                 DType dtype) const {
  const absl::StatusOr<internal::ReadableFile> file = OpenBytes();
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

absl::Status SafetensorsFile::ReadBytes(const SafetensorsEntry& entry,
                                        int64_t offset,
                                        absl::Span<uint8_t> bytes) const {
  const int64_t count = static_cast<int64_t>(bytes.size());
  if (offset < 0 || offset > entry.num_bytes() ||
      count > entry.num_bytes() - offset) {
    return Bad(
        path_, entry,
        absl::OutOfRangeError(absl::StrCat(count, " bytes from byte ", offset,
                                           " of ", entry.num_bytes())));
  }
  const absl::StatusOr<internal::ReadableFile> file = OpenBytes();
  absl::Status status = file.status();
  if (status.ok() && file->identity() != identity_) {
    status = absl::DataLossError("the file changed since it was opened");
  }
  if (status.ok()) {
    status = file->ReadAt(data_start_ + entry.begin + offset, bytes);
  }
  return status.ok() ? status : Bad(path_, entry, status);
}

absl::StatusOr<Tensor> SafetensorsFile::Load(
    Device& device, const SafetensorsEntry& entry) const {
  const absl::StatusOr<TensorForm> form = FormOf(entry);
  if (!form.ok()) return Bad(path_, entry, form.status());
  absl::StatusOr<Tensor> tensor;
  absl::Status status = internal::Guard([&] {
    tensor = maps_ != nullptr
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
