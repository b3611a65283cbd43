#include "espalier/runtime/file_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/check.h"

namespace espalier {

namespace {

class OpenFile {
 public:
  explicit OpenFile(int file) : file_(file) {}
  ~OpenFile() {
    if (file_ >= 0) close(file_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return file_; }
  explicit operator bool() const { return file_ >= 0; }

 private:
  const int file_;
};

absl::Status SystemError(absl::string_view what, absl::string_view path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

// A file that no other process can find by name.
int OpenUnnamed(const std::string& dir) {
  const int file = open(dir.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  // This file system has no unnamed files.
  std::string name = absl::StrCat(dir, "/espalier-XXXXXX");
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) unlink(name.c_str());
  return named;
}

bool TakeSpace(int file, int64_t bytes) {
  if (bytes == 0 || fallocate(file, 0, 0, bytes) == 0) return true;
  // A file system without allocation ahead takes blocks as they are written.
  return errno == EOPNOTSUPP && ftruncate(file, bytes) == 0;
}

int64_t PageBytes() { return sysconf(_SC_PAGESIZE); }

}  // namespace

absl::StatusOr<std::shared_ptr<FileMap>> FileMap::MapFile(
    int file, absl::string_view path, int64_t size, bool writable) {
  void* data = nullptr;
  if (size > 0) {
    data = mmap(nullptr, static_cast<size_t>(size),
                writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file,
                0);
    if (data == MAP_FAILED) {
      return SystemError(absl::StrCat("map ", size, " bytes of"), path);
    }
  }
  return std::shared_ptr<FileMap>(
      new FileMap(path, static_cast<uint8_t*>(data), size, writable));
}

absl::StatusOr<std::shared_ptr<FileMap>> FileMap::Open(absl::string_view path) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  const OpenFile file(
      open(std::string(path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return SystemError("open", path);
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) return SystemError("stat", path);
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot map ", path, ": it is ",
                     S_ISDIR(status.st_mode) ? "a directory" : "a device",
                     ", expected a regular file"));
  }
  return MapFile(file.get(), path, status.st_size, /*writable=*/false);
}

absl::StatusOr<std::shared_ptr<FileMap>> FileMap::CreateTemporary(
    absl::string_view dir, int64_t bytes) {
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("temporary file of ", bytes,
                                                   " bytes in ", dir,
                                                   ", expected 0 or more"));
  }
  const OpenFile file(OpenUnnamed(std::string(dir)));
  if (!file) return SystemError("create a temporary file in", dir);
  if (!TakeSpace(file.get(), bytes)) {
    return SystemError(
        absl::StrCat("take ", bytes, " bytes for a temporary file in"), dir);
  }
  return MapFile(file.get(), dir, bytes, /*writable=*/true);
}

FileMap::~FileMap() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_));
}

absl::Span<uint8_t> FileMap::mutable_bytes() const {
  ESPALIER_CHECK(writable_, "write access to the read-only map of ", path_);
  return {data_, static_cast<size_t>(size_)};
}

void FileMap::CheckRange(int64_t offset, int64_t count) const {
  ESPALIER_CHECK(offset >= 0 && count >= 0 && offset <= size_ - count,
                 "range [", offset, ", +", count, ") of ", size_, " bytes of ",
                 path_);
}

void FileMap::WillNeed(int64_t offset, int64_t count) const {
  CheckRange(offset, count);
  if (count == 0) return;
  const int64_t begin = offset / PageBytes() * PageBytes();
  // Advice may be refused; reading works without.
  (void)madvise(data_ + begin, static_cast<size_t>(offset + count - begin),
                MADV_WILLNEED);
}

void FileMap::DontNeed(int64_t offset, int64_t count) const {
  CheckRange(offset, count);
  const int64_t begin = RoundUp(offset, PageBytes());
  int64_t end = (offset + count) / PageBytes() * PageBytes();
  // The last page of the file is whole when the range reaches its end.
  if (offset + count == size_) end = size_;
  if (begin >= end) return;
  (void)madvise(data_ + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
}

}  // namespace espalier
