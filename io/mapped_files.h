#ifndef ESPALIER_IO_MAPPED_FILES_H_
#define ESPALIER_IO_MAPPED_FILES_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "espalier/io/internal/file.h"
#include "espalier/runtime/file_map.h"

namespace espalier {

// Files whose pages tensors point into, as they were when they were mapped.
// Touching a page behind the end of a file that shrank ends the process, so
// whoever computes with mapped weights looks here first. Immutable;
// thread-safe. Keeps no map alive.
class MappedFiles {
 public:
  struct File {
    std::string path;
    internal::FileIdentity identity;
    std::weak_ptr<FileMap> map;
  };

  MappedFiles() = default;
  explicit MappedFiles(std::vector<File> files) : files_(std::move(files)) {}

  // DATA_LOSS, naming the first file that is still mapped and has another size
  // or time of the last change by now. One that was removed, or replaced by
  // another of its name, is mapped as before and in order. Asks the system once
  // for each file, about two microseconds, and reads nothing. What happens
  // between this look and a touch of the pages it cannot see.
  absl::Status CheckUnchanged() const;

 private:
  std::vector<File> files_;
};

}  // namespace espalier

#endif  // ESPALIER_IO_MAPPED_FILES_H_
