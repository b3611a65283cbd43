#include "espalier/io/mapped_files.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace espalier {

absl::Status MappedFiles::CheckUnchanged() const {
  for (const File& file : files_) {
    if (file.map.expired()) continue;
    const absl::StatusOr<internal::FileIdentity> now =
        internal::IdentityOf(file.path);
    if (!now.ok() || *now == file.identity || !now->SameFile(file.identity)) {
      continue;
    }
    return absl::DataLossError(absl::StrCat(
        file.path, ": changed while its pages are in use: ", now->size,
        " bytes, expected ", file.identity.size,
        now->size == file.identity.size ? " and the time of its last change"
                                        : "",
        "; write a new file and rename it instead"));
  }
  return absl::OkStatus();
}

}  // namespace espalier
