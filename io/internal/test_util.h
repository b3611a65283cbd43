#ifndef ESPALIER_IO_INTERNAL_TEST_UTIL_H_
#define ESPALIER_IO_INTERNAL_TEST_UTIL_H_

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

#include "espalier/runtime/context.h"

namespace espalier::test {

// A folder of its own for one test, removed at the end.
class TempDir {
 public:
  TempDir() {
    std::string name = ::testing::TempDir() + "espalier-io-XXXXXX";
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  // Writes a file and returns its path.
  std::string Write(const std::string& name, absl::string_view bytes) const {
    std::ofstream file(Path(name), std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return Path(name);
  }

 private:
  std::string path_;
};

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The bytes of a safetensors file with this header.
inline std::string SafetensorsBytes(absl::string_view json,
                                    absl::string_view data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(json.size() >> (8 * i) & 0xff));
  }
  bytes.append(json.data(), json.size());
  bytes.append(data.data(), data.size());
  return bytes;
}

// The bytes of `count` values.
template <typename T>
std::string BytesOf(std::initializer_list<T> values) {
  return std::string(reinterpret_cast<const char*>(values.begin()),
                     values.size() * sizeof(T));
}

inline std::unique_ptr<Context> MakeContext() {
  ContextOptions options;
  options.num_threads = 1;
  return Context::Create(options).value();
}

}  // namespace espalier::test

#endif  // ESPALIER_IO_INTERNAL_TEST_UTIL_H_
