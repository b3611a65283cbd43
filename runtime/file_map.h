#ifndef ESPALIER_RUNTIME_FILE_MAP_H_
#define ESPALIER_RUNTIME_FILE_MAP_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace espalier {

// The bytes of one file as pages of the process: read when first touched,
// dropped by the system when memory is short. Shared by every tensor that
// points into it (Tensor::MapReadOnly takes it as the owner).
//
// The file must not shrink while it is mapped: touching a page past its new
// end ends the process (SIGBUS). Thread-safe, apart from writes to
// mutable_bytes(), which the caller orders.
class FileMap {
 public:
  // Maps a regular file for reading. An empty file gives an empty span. Fails
  // with NOT_FOUND, PERMISSION_DENIED or what else the system says, naming the
  // path; INVALID_ARGUMENT when the path is not a regular file.
  static absl::StatusOr<std::shared_ptr<FileMap>> Open(absl::string_view path);

  // Maps a new file without a name in folder `dir`, filled with zeros, for
  // reading and writing. Its disk space is taken at once, so that a full disk
  // is an error here (RESOURCE_EXHAUSTED) and not a signal later; it is given
  // back with the last reference.
  static absl::StatusOr<std::shared_ptr<FileMap>> CreateTemporary(
      absl::string_view dir, int64_t bytes);

  ~FileMap();
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;

  // As given to Open, or the folder given to CreateTemporary.
  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  bool writable() const { return writable_; }
  absl::Span<const uint8_t> bytes() const {
    return {data_, static_cast<size_t>(size_)};
  }
  // Of a CreateTemporary map; INTERNAL otherwise.
  absl::Span<uint8_t> mutable_bytes() const;

  // Advice for bytes [offset, offset + count), which must lie in the file.
  // WillNeed starts reading the range ahead of its use. DontNeed takes its
  // whole pages out of the process; they stay readable (and written bytes are
  // kept), from the system's file cache or, if that dropped them, the disk.
  void WillNeed(int64_t offset, int64_t count) const;
  void DontNeed(int64_t offset, int64_t count) const;

 private:
  FileMap(absl::string_view path, uint8_t* data, int64_t size, bool writable)
      : path_(path), data_(data), size_(size), writable_(writable) {}
  static absl::StatusOr<std::shared_ptr<FileMap>> MapFile(
      int file, absl::string_view path, int64_t size, bool writable);
  void CheckRange(int64_t offset, int64_t count) const;

  const std::string path_;
  uint8_t* const data_;  // null for an empty file
  const int64_t size_;
  const bool writable_;
};

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_FILE_MAP_H_
