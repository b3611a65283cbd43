#ifndef ESPALIER_TESTS_FUZZ_FUZZ_INPUT_H_
#define ESPALIER_TESTS_FUZZ_FUZZ_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

// What the fuzz targets share. A target is one file <name>_fuzz.cc with
// LLVMFuzzerTestOneInput; its inputs lie in corpus/<name>.
namespace espalier::fuzz {

inline absl::string_view Text(const uint8_t* data, size_t size) {
  return absl::string_view(reinterpret_cast<const char*>(data), size);
}

// What stands before the first NUL, and what behind it.
std::pair<absl::string_view, absl::string_view> SplitAtNul(
    absl::string_view bytes);

// Stops the program with the message: a finding.
void Require(bool condition, const char* what);

// The same text again and again, up to `max_bytes`: what takes time in the
// square of its length shows.
std::string Repeated(absl::string_view text, size_t max_bytes);

// A file without a place on a disk that can be opened by its path.
class MemoryFile {
 public:
  explicit MemoryFile(absl::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const;

 private:
  int descriptor_;
};

// A folder of its own, removed at the end.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  // Writes a file anew.
  void Write(const std::string& name, absl::string_view bytes) const;

 private:
  std::string path_;
};

// The bytes of a safetensors file.
std::string SafetensorsBytes(absl::string_view json, absl::string_view data);

}  // namespace espalier::fuzz

#endif  // ESPALIER_TESTS_FUZZ_FUZZ_INPUT_H_
