#include "espalier/io/internal/nested_folders.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace espalier::internal {

namespace {

namespace fs = std::filesystem;

// Without links, as far as the path is there; empty where that cannot be told.
fs::path Resolve(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  if (error) return {};
  fs::path resolved = fs::weakly_canonical(absolute, error);
  if (error) return {};
  return resolved.has_filename() ? resolved : resolved.parent_path();
}

// Whether `path` is `folder` or lies in it.
bool IsIn(fs::path path, const fs::path& folder) {
  while (true) {
    std::error_code error;
    if (path == folder || fs::equivalent(path, folder, error)) return true;
    const fs::path parent = path.parent_path();
    if (parent == path) return false;
    path = parent;
  }
}

absl::Status Nested(const std::string& out, absl::string_view how,
                    const std::string& source) {
  return absl::InvalidArgumentError(
      absl::StrCat(out, ": the new folder ", how, " ", source,
                   ", expected one beside it; name another folder"));
}

}  // namespace

absl::Status CheckApart(const std::string& source, const std::string& out) {
  const fs::path from = Resolve(source);
  std::string target = out;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  if (from.empty()) return absl::OkStatus();
  for (const std::string& name : {target, absl::StrCat(target, ".partial")}) {
    const fs::path to = Resolve(name);
    if (to.empty()) continue;
    if (IsIn(to, from)) {
      return Nested(name, "is or lies in the source", source);
    }
    if (IsIn(from, to)) return Nested(name, "holds the source", source);
  }
  return absl::OkStatus();
}

absl::Status CheckApart(const Folder& source, const std::string& out) {
  return source.is_local() ? CheckApart(source.path(), out) : absl::OkStatus();
}

}  // namespace espalier::internal
