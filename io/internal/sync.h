#ifndef ESPALIER_IO_INTERNAL_SYNC_H_
#define ESPALIER_IO_INTERNAL_SYNC_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace espalier::internal {

// The part before the last slash; "." without one.
std::string DirName(absl::string_view path);

// A name in the same folder that no other process or thread tries at the same
// time, ".NAME.tmp-..."; another one for each `attempt`.
std::string TemporaryName(absl::string_view path, int attempt);

// Makes names in a folder last (fsync).
absl::Status SyncDirectory(const std::string& dir);
// Makes the bytes of a file last.
absl::Status SyncFile(const std::string& path);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_SYNC_H_
