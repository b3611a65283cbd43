#include "espalier/io/internal/disk_space.h"

#include <sys/statvfs.h>

#include "absl/strings/str_cat.h"

namespace espalier::internal {

namespace {

// -1 if unknown.
int64_t FreeBytes(const std::string& dir) {
  struct statvfs status = {};
  int64_t bytes = 0;
  if (statvfs(dir.c_str(), &status) != 0 ||
      __builtin_mul_overflow(static_cast<int64_t>(status.f_bavail),
                             static_cast<int64_t>(status.f_frsize), &bytes)) {
    return -1;
  }
  return bytes;
}

}  // namespace

absl::Status NoSpaceError(const std::string& dir, const std::string& target,
                          int64_t needed) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot write ", target, ": needs ", needed,
                   " bytes of disk space, ", FreeBytes(dir), " are free"));
}

absl::Status CheckSpace(const std::string& dir, const std::string& target,
                        int64_t needed) {
  const int64_t free_bytes = FreeBytes(dir);
  if (free_bytes < 0 || free_bytes >= needed) return absl::OkStatus();
  return NoSpaceError(dir, target, needed);
}

}  // namespace espalier::internal
