#ifndef ESPALIER_IO_FOLDER_H_
#define ESPALIER_IO_FOLDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "espalier/io/internal/file.h"
#include "espalier/io/json.h"

namespace espalier {

// Files that can be read, by name: those of a local folder, or the objects
// below a prefix of a store (io/object_folder.h), which are then read by ranges
// and not copied first. Names are paths below the folder, "/" between their
// parts. Thread-safe.
class Folder {
 public:
  virtual ~Folder() = default;
  static std::shared_ptr<const Folder> Local(const std::string& path);

  // For messages: a path, or "s3://bucket/prefix".
  virtual const std::string& path() const = 0;
  std::string PathOf(const std::string& name) const;
  // Whether PathOf names local files, which can be mapped.
  virtual bool is_local() const = 0;
  // What was read so far, and what of it could be compared with checksums; one
  // line, empty for a local folder.
  virtual std::string Account() const { return ""; }

  virtual bool Exists(const std::string& name) const = 0;
  // All files, ascending; those of folders inside only with `deep`.
  virtual absl::StatusOr<std::vector<std::string>> List(bool deep) const = 0;
  virtual absl::StatusOr<internal::ReadableFile> Open(
      const std::string& name) const = 0;
  // The whole file. Fails where it is longer than `max_bytes`.
  absl::StatusOr<std::string> ReadWhole(const std::string& name,
                                        int64_t max_bytes) const;
  // A JSON file; errors name its path.
  absl::StatusOr<JsonValue> ReadJson(const std::string& name,
                                     int64_t max_bytes = int64_t{64}
                                                         << 20) const;
};

// Whether a read failed on the way to the folder, so that nothing is known of
// what is in it: UNAVAILABLE, or ABORTED because an object changed.
bool IsTransportError(const absl::Status& status);

}  // namespace espalier

#endif  // ESPALIER_IO_FOLDER_H_
