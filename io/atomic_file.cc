#include "espalier/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/disk_space.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/internal/sync.h"

namespace espalier {

namespace {

constexpr size_t kMaxWriteBytes = size_t{1} << 30;

// Takes the space of the whole file, or finds out that it is not there.
absl::Status TakeSpace(int file, const std::string& path, int64_t bytes) {
  if (bytes == 0 || fallocate(file, 0, 0, bytes) == 0) {
    return absl::OkStatus();
  }
  if (errno == ENOSPC || errno == EFBIG) {
    return internal::NoSpaceError(internal::DirName(path), path, bytes);
  }
  if (errno != EOPNOTSUPP && errno != ENOSYS) {
    return internal::SystemError("take disk space for", path);
  }
  return internal::CheckSpace(internal::DirName(path), path, bytes);
}

}  // namespace

AtomicFile::AtomicFile(std::string path, std::string temporary, int file)
    : path_(std::move(path)), temporary_(std::move(temporary)), file_(file) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      file_(std::exchange(other.file_, -1)) {}

AtomicFile::~AtomicFile() { Discard(); }

void AtomicFile::Discard() {
  if (file_ < 0) return;
  close(std::exchange(file_, -1));
  unlink(temporary_.c_str());
}

absl::StatusOr<AtomicFile> AtomicFile::Create(const std::string& path,
                                              int64_t bytes) {
  // O_EXCL over names that differ: the mode then follows the umask, which
  // mkstemp's would not.
  constexpr int kMaxTries = 100;
  // A rename would put a file in the place of a device, a pipe or a link.
  struct stat there {};
  if (lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    return absl::AlreadyExistsError(absl::StrCat(
        path, ": is there and is no regular file; name another one"));
  }
  for (int i = 0; i < kMaxTries; ++i) {
    std::string temporary = internal::TemporaryName(path, i);
    const int file =
        open(temporary.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (file < 0 && errno == EEXIST) continue;
    if (file < 0) return internal::SystemError("create", temporary);
    AtomicFile result(path, std::move(temporary), file);
    if (absl::Status status = TakeSpace(file, path, bytes); !status.ok()) {
      return status;
    }
    return result;
  }
  return absl::AlreadyExistsError(
      absl::StrCat("cannot create a temporary file beside ", path));
}

absl::Status AtomicFile::WriteAt(int64_t offset,
                                 absl::Span<const uint8_t> bytes) {
  if (file_ < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": written after its end"));
  }
  size_t done = 0;
  while (done < bytes.size()) {
    const int64_t position = offset + static_cast<int64_t>(done);
    const ssize_t wrote =
        pwrite(file_, bytes.data() + done,
               std::min(bytes.size() - done, kMaxWriteBytes), position);
    if (wrote < 0) {
      if (errno == EINTR) continue;
      return internal::SystemError(
          absl::StrCat("write at byte ", position, " of"), temporary_);
    }
    done += static_cast<size_t>(wrote);
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  if (file_ < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": finished twice"));
  }
  if (fsync(file_) != 0) return internal::SystemError("flush", temporary_);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return internal::SystemError("rename to", path_);
  }
  if (close(std::exchange(file_, -1)) != 0) {
    return internal::SystemError("close", path_);
  }
  return internal::SyncDirectory(internal::DirName(path_));
}

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view text) {
  absl::StatusOr<AtomicFile> file =
      AtomicFile::Create(path, static_cast<int64_t>(text.size()));
  if (!file.ok()) return file.status();
  absl::Status status = file->WriteAt(
      0, absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()),
                             text.size()));
  return status.ok() ? file->Commit() : status;
}

}  // namespace espalier
