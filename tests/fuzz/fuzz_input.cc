#include "espalier/tests/fuzz/fuzz_input.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace espalier::fuzz {

std::pair<absl::string_view, absl::string_view> SplitAtNul(
    absl::string_view bytes) {
  const size_t nul = std::min(bytes.find('\0'), bytes.size());
  return {bytes.substr(0, nul), bytes.substr(std::min(nul + 1, bytes.size()))};
}

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz: does not hold: %s\n", what);
  std::abort();
}

std::string Repeated(absl::string_view text, size_t max_bytes) {
  std::string result;
  while (!text.empty() && result.size() + text.size() <= max_bytes) {
    result.append(text.data(), text.size());
  }
  return result;
}

MemoryFile::MemoryFile(absl::string_view bytes)
    : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
  Require(descriptor_ >= 0, "memfd_create works");
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
    Require(written > 0, "a file in memory can be written");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

MemoryFile::~MemoryFile() { close(descriptor_); }

std::string MemoryFile::path() const {
  return absl::StrCat("/proc/self/fd/", descriptor_);
}

ScratchFolder::ScratchFolder() {
  std::error_code error;
  const std::filesystem::path shared_memory = "/dev/shm";
  const std::filesystem::path parent =
      access(shared_memory.c_str(), W_OK) == 0
          ? shared_memory
          : std::filesystem::temp_directory_path(error);
  path_ = (parent / "espalier-fuzz-XXXXXX").string();
  Require(mkdtemp(path_.data()) != nullptr, "a scratch folder can be made");
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void ScratchFolder::Write(const std::string& name,
                          absl::string_view bytes) const {
  std::ofstream file(absl::StrCat(path_, "/", name), std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string SafetensorsBytes(absl::string_view json, absl::string_view data) {
  std::string bytes;
  for (size_t i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(json.size() >> (8 * i) & 0xff));
  }
  absl::StrAppend(&bytes, json, data);
  return bytes;
}

}  // namespace espalier::fuzz
