#ifndef ESPALIER_IO_ATOMIC_FILE_H_
#define ESPALIER_IO_ATOMIC_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace espalier {

// A file that appears under its name whole, or not at all: it is written
// beside it as ".NAME.tmp-...", flushed to the disk and renamed. A file that
// had the name before is replaced; those who mapped it keep the old bytes.
class AtomicFile {
 public:
  // With `bytes` > 0 the disk space is taken at once: RESOURCE_EXHAUSTED, with
  // the figures, when it is short. Other failures are what the system says.
  static absl::StatusOr<AtomicFile> Create(const std::string& path,
                                           int64_t bytes = 0);
  // Without Commit, removes what was written.
  ~AtomicFile();
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;

  const std::string& path() const { return path_; }
  // Where the bytes are until Commit, to be read back.
  const std::string& temporary_path() const { return temporary_; }
  absl::Status WriteAt(int64_t offset, absl::Span<const uint8_t> bytes);
  // Flushes and renames; nothing may be written afterwards.
  absl::Status Commit();

 private:
  AtomicFile(std::string path, std::string temporary, int file);
  void Discard();

  std::string path_;
  std::string temporary_;
  int file_ = -1;  // -1 after Commit
};

// Writes a whole file in this way.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view text);

}  // namespace espalier

#endif  // ESPALIER_IO_ATOMIC_FILE_H_
