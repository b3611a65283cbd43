#ifndef ESPALIER_IO_SAFETENSORS_READER_H_
#define ESPALIER_IO_SAFETENSORS_READER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/folder.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/safetensors_format.h"
#include "espalier/runtime/device.h"
#include "espalier/runtime/file_map.h"
#include "espalier/runtime/tensor.h"

namespace espalier {

enum class ReadMode : uint8_t {
  // Tensors are pages of the mapped file: nothing is copied or read ahead. An
  // input/output error of the medium is a signal, so not for network disks.
  kMap,
  // Tensors are read into memory of their own; an error is a Status.
  kRead,
  // kRead on network and FUSE file systems, kMap elsewhere; decided for each
  // file when it is opened.
  kAuto,
};

// "map", "read", "auto"
absl::string_view ToString(ReadMode mode);

namespace internal {
class MapCache;
}

// One safetensors file, its header read and validated; no handle stays open.
// Thread-compatible; Load and the other readers are safe from several threads
// at once.
class SafetensorsFile {
 public:
  // Fails, naming the file (and the tensor where there is one), when the file
  // breaks a rule of ParseSafetensorsHeader or is shorter than it claims.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path,
                                              ReadMode mode = ReadMode::kMap);
  // The same, but mapped at the first Load and as long as `maps` keeps it:
  // for the shards of one checkpoint. `maps` may not be null.
  static absl::StatusOr<SafetensorsFile> Open(
      const std::string& path, ReadMode mode,
      std::shared_ptr<internal::MapCache> maps);
  // A file of a folder, which is kept; kRead where that is not local.
  static absl::StatusOr<SafetensorsFile> Open(
      std::shared_ptr<const Folder> folder, const std::string& name,
      ReadMode mode, std::shared_ptr<internal::MapCache> maps);

  const std::string& path() const { return path_; }
  // kMap or kRead.
  ReadMode mode() const { return mode_; }
  int64_t file_bytes() const { return identity_.size; }
  // In the order of their data.
  const std::vector<SafetensorsEntry>& entries() const {
    return header_.entries;
  }
  // Frees the entries, for who keeps them in another form: entries() is empty
  // from then on, Find and Load by name find nothing.
  void DropEntries();
  // Null when there is none.
  const SafetensorsEntry* Find(absl::string_view name) const {
    return header_.Find(name);
  }
  const std::map<std::string, std::string>& metadata() const {
    return header_.metadata;
  }
  // What the header holds beside the format, for a person to read.
  const std::vector<std::string>& warnings() const { return header_.warnings; }

  // The tensor. Element types that Tensor lacks come as u8 with the last dim
  // in bytes (F4 [2, 8] as [2, 4], I16 [] as [2]). In mode kMap on a
  // host-addressable device it is a read-only view of the file, apart from
  // data that the file holds unaligned for its dtype and tensors without
  // elements: those are copies. `entry` must be one that entries() had.
  // Fails: DATA_LOSS when the file has changed since Open; INVALID_ARGUMENT
  // for BOOL bytes beside 0 and 1; UNIMPLEMENTED above 8 dims.
  absl::StatusOr<Tensor> Load(Device& device,
                              const SafetensorsEntry& entry) const;
  // The same by name; NOT_FOUND names file and tensor.
  absl::StatusOr<Tensor> Load(Device& device, absl::string_view name) const;
  // Rows [start, start + count) of the first dim, without reading the others.
  absl::StatusOr<Tensor> LoadRows(Device& device, const SafetensorsEntry& entry,
                                  int64_t start, int64_t count) const;

  // Raw bytes [offset, offset + bytes.size()) of a tensor's data, read into
  // `bytes` in either mode, so that nothing stays resident: for streaming.
  // OUT_OF_RANGE beyond the tensor's end; otherwise fails as Load does.
  absl::Status ReadBytes(const SafetensorsEntry& entry, int64_t offset,
                         absl::Span<uint8_t> bytes) const;
  // Mode kMap: the whole file as pages. An entry's data is at data_start() +
  // begin. FAILED_PRECONDITION in mode kRead.
  absl::StatusOr<std::shared_ptr<FileMap>> Map() const;
  int64_t data_start() const { return data_start_; }

 private:
  SafetensorsFile() = default;
  absl::StatusOr<internal::ReadableFile> OpenBytes() const;
  absl::Status ReadHeader();
  absl::Status CheckUnchanged(const internal::FileIdentity& now) const;
  absl::StatusOr<Tensor> LoadMapped(Device& device,
                                    const SafetensorsEntry& entry,
                                    const Shape& shape, DType dtype) const;
  absl::StatusOr<Tensor> LoadRead(Device& device, const SafetensorsEntry& entry,
                                  const Shape& shape, DType dtype) const;

  std::string path_;
  std::shared_ptr<const Folder> remote_;  // null for a local file
  std::string name_;                      // in remote_
  ReadMode mode_ = ReadMode::kMap;
  internal::FileIdentity identity_;
  std::shared_ptr<internal::MapCache> maps_;  // null in mode kRead
  int64_t data_start_ = 0;
  SafetensorsHeader header_;
};

}  // namespace espalier

#endif  // ESPALIER_IO_SAFETENSORS_READER_H_
