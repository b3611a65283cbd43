#include "espalier/io/internal/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace espalier::internal {

namespace {

// One read() moves at most about 2 GiB.
constexpr size_t kMaxReadBytes = size_t{1} << 30;

FileIdentity ToIdentity(const struct stat& status) {
  return {
      static_cast<uint64_t>(status.st_dev),
      static_cast<uint64_t>(status.st_ino), status.st_size,
      status.st_mtim.tv_sec * int64_t{1'000'000'000} + status.st_mtim.tv_nsec};
}

}  // namespace

absl::Status SystemError(absl::string_view what, absl::string_view path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

absl::StatusOr<FileIdentity> IdentityOf(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return SystemError("look at", path);
  return ToIdentity(status);
}

bool IsRemoteFile(const std::string& path) {
  // statfs(2): NFS, SMB, CIFS, SMB2, FUSE, 9P, Lustre, Ceph, AFS, Coda, GPFS.
  constexpr uint32_t kRemote[] = {
      0x6969,     0x517b,     0xff534d42, 0xfe534d42, 0x65735546, 0x01021997,
      0x0bd00bd0, 0x00c36400, 0x5346414f, 0x73757245, 0x47504653};
  struct statfs status = {};
  if (statfs(path.c_str(), &status) != 0) return false;
  const uint32_t type = static_cast<uint32_t>(status.f_type);
  return std::find(std::begin(kRemote), std::end(kRemote), type) !=
         std::end(kRemote);
}

ReadableFile::ReadableFile(std::string path, int file,
                           const FileIdentity& identity)
    : path_(std::move(path)), file_(file), identity_(identity) {}

ReadableFile::~ReadableFile() {
  if (file_ >= 0) close(file_);
}

ReadableFile::ReadableFile(ReadableFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      identity_(other.identity_),
      source_(std::move(other.source_)) {}

ReadableFile ReadableFile::Of(std::string path, const FileIdentity& identity,
                              std::shared_ptr<const ByteSource> source) {
  ReadableFile file(std::move(path), -1, identity);
  file.source_ = std::move(source);
  return file;
}

absl::StatusOr<FileIdentity> ReadableFile::IdentityNow() const {
  if (source_ != nullptr) return identity_;
  return IdentityOf(path_);
}

absl::StatusOr<ReadableFile> ReadableFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return SystemError("open", path);
  ReadableFile readable(path, file, {});
  struct stat status = {};
  if (fstat(file, &status) != 0) return SystemError("look at", path);
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a regular file"));
  }
  readable.identity_ = ToIdentity(status);
  return readable;
}

absl::Status ReadableFile::ReadAt(int64_t offset,
                                  absl::Span<uint8_t> bytes) const {
  if (source_ != nullptr) {
    const int64_t end = offset + static_cast<int64_t>(bytes.size());
    if (offset >= 0 && end <= size()) return source_->ReadAt(offset, bytes);
    return absl::DataLossError(absl::StrCat(path_, ": ends at byte ", size(),
                                            ", expected ", end, " bytes"));
  }
  size_t done = 0;
  while (done < bytes.size()) {
    const int64_t position = offset + static_cast<int64_t>(done);
    const ssize_t got =
        pread(file_, bytes.data() + done,
              std::min(bytes.size() - done, kMaxReadBytes), position);
    if (got < 0) {
      if (errno == EINTR) continue;
      return SystemError(absl::StrCat("read at byte ", position, " of"), path_);
    }
    if (got == 0) {
      return absl::DataLossError(
          absl::StrCat(path_, ": ends at byte ", position, ", expected ",
                       offset + static_cast<int64_t>(bytes.size()), " bytes"));
    }
    done += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path,
                                          int64_t max_bytes) {
  const absl::StatusOr<ReadableFile> file = ReadableFile::Open(path);
  if (!file.ok()) return file.status();
  return ReadWholeFile(*file, max_bytes);
}

absl::StatusOr<std::string> ReadWholeFile(const ReadableFile& file,
                                          int64_t max_bytes) {
  if (file.size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": ", file.size(),
                     " bytes, expected at most ", max_bytes));
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  absl::Status status = file.ReadAt(
      0, absl::MakeSpan(reinterpret_cast<uint8_t*>(text.data()), text.size()));
  if (!status.ok()) return status;
  return text;
}

absl::StatusOr<std::optional<std::string>> ReadFileIfThere(
    const std::string& path, int64_t max_bytes) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return std::optional<std::string>();
  }
  absl::StatusOr<std::string> text = ReadWholeFile(path, max_bytes);
  if (!text.ok()) return text.status();
  return std::optional<std::string>(*std::move(text));
}

std::string JoinPath(absl::string_view dir, absl::string_view name) {
  const bool has_slash = !dir.empty() && dir.back() == '/';
  return absl::StrCat(dir, has_slash ? "" : "/", name);
}

absl::string_view BaseName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

bool IsBareFileName(absl::string_view name) {
  if (name.empty() || name == "." || name == "..") return false;
  return std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == '\\' || c == ':' || c == '\0';
  });
}

}  // namespace espalier::internal
