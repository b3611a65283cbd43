#include "espalier/io/folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace espalier {

namespace {

namespace fs = std::filesystem;

class LocalFolder final : public Folder {
 public:
  explicit LocalFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const override { return path_; }
  bool is_local() const override { return true; }

  bool Exists(const std::string& name) const override {
    std::error_code ignored;
    return fs::exists(PathOf(name), ignored);
  }

  absl::StatusOr<std::vector<std::string>> List(bool deep) const override {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::recursive_directory_iterator it(path_, error), end;
         !error && it != end; it.increment(error)) {
      if (!deep) it.disable_recursion_pending();
      if (it->is_directory(error) && !it->is_symlink(error)) continue;
      names.push_back(it->path().lexically_relative(path_).string());
    }
    if (error) {
      return absl::UnknownError(
          absl::StrCat("cannot look at ", path_, ": ", error.message()));
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::StatusOr<internal::ReadableFile> Open(
      const std::string& name) const override {
    return internal::ReadableFile::Open(PathOf(name));
  }

 private:
  const std::string path_;
};

}  // namespace

std::shared_ptr<const Folder> Folder::Local(const std::string& path) {
  return std::make_shared<LocalFolder>(path);
}

std::string Folder::PathOf(const std::string& name) const {
  return internal::JoinPath(path(), name);
}

absl::StatusOr<std::string> Folder::ReadWhole(const std::string& name,
                                              int64_t max_bytes) const {
  const absl::StatusOr<internal::ReadableFile> file = Open(name);
  if (!file.ok()) return file.status();
  return internal::ReadWholeFile(*file, max_bytes);
}

absl::StatusOr<JsonValue> Folder::ReadJson(const std::string& name,
                                           int64_t max_bytes) const {
  const absl::StatusOr<std::string> text = ReadWhole(name, max_bytes);
  if (!text.ok()) return text.status();
  absl::StatusOr<JsonValue> value = ParseJsonText(*text);
  if (value.ok()) return value;
  return absl::Status(
      value.status().code(),
      absl::StrCat(PathOf(name), ": ", value.status().message()));
}

bool IsTransportError(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status);
}

}  // namespace espalier
