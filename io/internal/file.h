#ifndef ESPALIER_IO_INTERNAL_FILE_H_
#define ESPALIER_IO_INTERNAL_FILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace espalier::internal {

// Tells whether a file is still the one that was looked at.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t size = 0;
  int64_t modified_ns = 0;

  bool SameFile(const FileIdentity& other) const {
    return device == other.device && inode == other.inode;
  }
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

// The Status of errno: "cannot <what> <path>: <reason>".
absl::Status SystemError(absl::string_view what, absl::string_view path);

absl::StatusOr<FileIdentity> IdentityOf(const std::string& path);

// Whether the file lies on a network or FUSE file system, where an error of a
// mapped page would be a signal. False where the system does not tell.
bool IsRemoteFile(const std::string& path);

// Bytes by position that are not a local file's. Thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills `bytes` from `offset` on; they lie inside.
  virtual absl::Status ReadAt(int64_t offset,
                              absl::Span<uint8_t> bytes) const = 0;
};

// A regular file, or a ByteSource, read by position. Closes itself.
class ReadableFile {
 public:
  static absl::StatusOr<ReadableFile> Open(const std::string& path);
  // `path` is for messages; `identity` holds the size.
  static ReadableFile Of(std::string path, const FileIdentity& identity,
                         std::shared_ptr<const ByteSource> source);
  ~ReadableFile();
  ReadableFile(ReadableFile&& other) noexcept;
  ReadableFile& operator=(ReadableFile&&) = delete;

  const std::string& path() const { return path_; }
  const FileIdentity& identity() const { return identity_; }
  int64_t size() const { return identity_.size; }
  // What has the path now. A ByteSource stays what it is.
  absl::StatusOr<FileIdentity> IdentityNow() const;

  // Fills `bytes` from `offset` on. Fails, naming file and offset, on a read
  // error and where the file ends early (DATA_LOSS).
  absl::Status ReadAt(int64_t offset, absl::Span<uint8_t> bytes) const;

 private:
  ReadableFile(std::string path, int file, const FileIdentity& identity);

  std::string path_;
  int file_;  // -1 with a source_
  FileIdentity identity_;
  std::shared_ptr<const ByteSource> source_;
};

// The whole file. Fails where it is longer than `max_bytes`.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path,
                                          int64_t max_bytes);
absl::StatusOr<std::string> ReadWholeFile(const ReadableFile& file,
                                          int64_t max_bytes);

// The same; nothing where there is no file of that name.
absl::StatusOr<std::optional<std::string>> ReadFileIfThere(
    const std::string& path, int64_t max_bytes);

// "dir/name", without doubling a slash.
std::string JoinPath(absl::string_view dir, absl::string_view name);

// The part behind the last slash.
absl::string_view BaseName(absl::string_view path);

// Whether `name` names a file inside a folder, and nothing else: no slash, no
// backslash, no drive, no NUL, not "." or "..".
bool IsBareFileName(absl::string_view name);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_FILE_H_
