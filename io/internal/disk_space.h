#ifndef ESPALIER_IO_INTERNAL_DISK_SPACE_H_
#define ESPALIER_IO_INTERNAL_DISK_SPACE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace espalier::internal {

// RESOURCE_EXHAUSTED: `target` needs more bytes than the disk of the folder
// `dir` has.
absl::Status NoSpaceError(const std::string& dir, const std::string& target,
                          int64_t needed);

// NoSpaceError where the disk has fewer than `needed` bytes free for this
// user; OK where that cannot be told.
absl::Status CheckSpace(const std::string& dir, const std::string& target,
                        int64_t needed);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_DISK_SPACE_H_
