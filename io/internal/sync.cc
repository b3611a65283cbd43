#include "espalier/io/internal/sync.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/file.h"

namespace espalier::internal {

namespace {

absl::Status Sync(const std::string& path, int flags) {
  const int file = open(path.c_str(), flags | O_CLOEXEC);
  if (file < 0) return SystemError("open", path);
  absl::Status status;
  // EINVAL: a file system that has nothing to flush.
  if (fsync(file) != 0 && errno != EINVAL) status = SystemError("flush", path);
  close(file);
  return status;
}

}  // namespace

std::string DirName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  return std::string(path.substr(0, slash == 0 ? 1 : slash));
}

std::string TemporaryName(absl::string_view path, int attempt) {
  const int64_t now =
      std::chrono::steady_clock::now().time_since_epoch().count();
  return absl::StrCat(JoinPath(DirName(path), "."), BaseName(path), ".tmp-",
                      getpid(), "-", absl::Hex(now), "-", attempt);
}

absl::Status SyncDirectory(const std::string& dir) {
  return Sync(dir, O_RDONLY | O_DIRECTORY);
}

absl::Status SyncFile(const std::string& path) { return Sync(path, O_RDONLY); }

}  // namespace espalier::internal
