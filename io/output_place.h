#ifndef ESPALIER_IO_OUTPUT_PLACE_H_
#define ESPALIER_IO_OUTPUT_PLACE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace espalier {

// The place of a folder that a long run will write at its end, looked at and
// held from the start. ".NAME.lock" beside it is locked (flock) and removed
// with this object; what a killed process left of it locks nothing.
class OutputPlace {
 public:
  // Makes sure, by doing it, that AtomicDirectory can make a folder there, and
  // fails as it does. ABORTED, with the process, while another OutputPlace of
  // this or another process holds the same folder; a file system without locks
  // has no such other.
  static absl::StatusOr<OutputPlace> Hold(const std::string& target);
  ~OutputPlace();
  OutputPlace(OutputPlace&& other) noexcept;
  OutputPlace& operator=(OutputPlace&&) = delete;

  // RESOURCE_EXHAUSTED, with the figures, when the disk has fewer bytes free.
  absl::Status CheckSpace(int64_t bytes) const;

 private:
  OutputPlace(std::string target, std::string lock_path, int lock);

  std::string target_;
  std::string lock_path_;
  int lock_ = -1;  // -1 when moved from, or without locks
};

}  // namespace espalier

#endif  // ESPALIER_IO_OUTPUT_PLACE_H_
