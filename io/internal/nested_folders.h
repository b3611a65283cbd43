#ifndef ESPALIER_IO_INTERNAL_NESTED_FOLDERS_H_
#define ESPALIER_IO_INTERNAL_NESTED_FOLDERS_H_

#include <string>

#include "absl/status/status.h"

#include "espalier/io/folder.h"

namespace espalier::internal {

// INVALID_ARGUMENT, with both paths, where the new folder `out` or the
// OUT.partial that it is written to is the source, lies in it or holds it:
// through links and other names of the same folder, too. Looks only.
absl::Status CheckApart(const std::string& source, const std::string& out);
// The same; OK of a folder that is not local.
absl::Status CheckApart(const Folder& source, const std::string& out);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_NESTED_FOLDERS_H_
