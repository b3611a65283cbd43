#include "espalier/io/object_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/atomic_directory.h"
#include "espalier/io/content_hash.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/internal/folder_job.h"

namespace espalier {

namespace {

namespace fs = std::filesystem;

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("cannot create ", path));
}

// Keys come from elsewhere: none may lead out of the folder.
absl::Status CheckKey(const std::string& key) {
  if (internal::IsPathBelow(key)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "object key \"", key, "\" cannot be the name of a local file"));
}

}  // namespace

ObjectCache::ObjectCache(ObjectStore& store, std::string dir, int64_t max_bytes)
    : store_(store), dir_(std::move(dir)), max_bytes_(max_bytes) {}

absl::StatusOr<std::unique_ptr<ObjectCache>> ObjectCache::Create(
    ObjectStore& store, const std::string& dir, int64_t max_bytes) {
  if (max_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cache: max_bytes is ", max_bytes, ", expected >= 0"));
  }
  for (const char* part : {"objects", "trees"}) {
    absl::Status status = MakeFolder(internal::JoinPath(dir, part));
    if (!status.ok()) return status;
  }
  return std::unique_ptr<ObjectCache>(
      new ObjectCache(store, fs::absolute(dir).string(), max_bytes));
}

std::string ObjectCache::NameOf(const std::string& bucket,
                                const ObjectInfo& object) const {
  return WideHash(store_.IdentityOf(bucket, object));
}

absl::Status ObjectCache::MakeRoom(const std::string& bucket,
                                   const std::vector<ObjectInfo>& objects) {
  if (max_bytes_ == 0) return absl::OkStatus();
  std::set<std::string> wanted = in_use_;
  int64_t missing = 0;
  const std::string folder = internal::JoinPath(dir_, "objects");
  for (const ObjectInfo& object : objects) {
    const std::string name = NameOf(bucket, object);
    std::error_code ignored;
    const bool there = fs::exists(internal::JoinPath(folder, name), ignored);
    if (wanted.insert(name).second && !there) missing += object.size;
  }
  struct Old {
    fs::file_time_type used;
    std::string name;
    int64_t size = 0;
  };
  std::vector<Old> old;
  int64_t total = missing;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::error_code gone;
    const auto size = static_cast<int64_t>(entry.file_size(gone));
    const auto used = entry.last_write_time(gone);
    if (gone) continue;
    total += size;
    const std::string name = entry.path().filename().string();
    if (wanted.count(name) == 0) old.push_back({used, name, size});
  }
  std::sort(old.begin(), old.end(), [](const Old& a, const Old& b) {
    return std::tie(a.used, a.name) < std::tie(b.used, b.name);
  });
  int64_t freed = 0;
  for (const Old& each : old) freed += each.size;
  if (total - freed > max_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(dir_, ": needs ", total - freed, " bytes for s3://",
                     bucket, "/", objects.empty() ? "" : objects[0].key,
                     " and what is in use, the cache "
                     "may hold ",
                     max_bytes_, "; allow it more"));
  }
  for (const Old& each : old) {
    if (total <= max_bytes_) break;
    fs::remove(internal::JoinPath(folder, each.name), error);
    total -= each.size;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ObjectCache::GetObject(const std::string& bucket,
                                                   const ObjectInfo& object) {
  const std::string name = NameOf(bucket, object);
  std::string path =
      internal::JoinPath(internal::JoinPath(dir_, "objects"), name);
  in_use_.insert(name);
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && info.st_size == object.size) {
    utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now
    ++num_hits_;
    return path;
  }
  bool compared = false;
  const absl::Status fetched = store_.Fetch(bucket, object, path, &compared);
  if (!fetched.ok()) return fetched;
  ++num_fetched_;
  num_compared_ += compared;
  return path;
}

std::string ObjectCache::Account() const {
  return absl::StrCat(dir_, ": ", num_fetched_, " objects copied, of which ",
                      num_compared_,
                      " agree with the store's checksum and the others have "
                      "none; ",
                      num_hits_, " were there");
}

absl::StatusOr<std::string> ObjectCache::Get(const ObjectUrl& url) {
  if (!url.key.empty() && !absl::EndsWith(url.key, "/")) {
    const auto object = store_.Head(url.bucket, url.key);
    if (object.ok()) {
      absl::Status status = CheckKey(url.key);
      if (status.ok()) status = MakeRoom(url.bucket, {*object});
      if (!status.ok()) return status;
      const auto path = GetObject(url.bucket, *object);
      if (!path.ok()) return path.status();
      // Under its own name, since names tell formats.
      const std::string tree = internal::JoinPath(
          internal::JoinPath(dir_, "trees"), NameOf(url.bucket, *object));
      std::string link = internal::JoinPath(tree, internal::BaseName(url.key));
      status = MakeFolder(tree);
      if (!status.ok()) return status;
      if (symlink(path->c_str(), link.c_str()) != 0 && errno != EEXIST) {
        return internal::SystemError("link", link);
      }
      return link;
    }
    if (!absl::IsNotFound(object.status())) return object.status();
  }
  std::string prefix = url.key;
  if (!prefix.empty() && !absl::EndsWith(prefix, "/")) prefix += '/';
  auto objects = store_.List(url.bucket, prefix);
  if (!objects.ok()) return objects.status();
  // "Folders" that a console leaves.
  objects->erase(std::remove_if(objects->begin(), objects->end(),
                                [](const ObjectInfo& object) {
                                  return absl::EndsWith(object.key, "/");
                                }),
                 objects->end());
  if (objects->empty()) {
    return absl::NotFoundError(
        absl::StrCat(url.ToString(), ": no object and nothing below it"));
  }
  std::string names;
  for (const ObjectInfo& object : *objects) {
    if (!absl::StartsWith(object.key, prefix)) {
      return absl::DataLossError(
          absl::StrCat(url.ToString(), ": the listing holds ", object.key));
    }
    absl::Status status = CheckKey(object.key.substr(prefix.size()));
    if (!status.ok()) return status;
    absl::StrAppend(&names, NameOf(url.bucket, object), "\n");
  }
  absl::Status status = MakeRoom(url.bucket, *objects);
  if (!status.ok()) return status;
  std::vector<std::string> paths;
  for (const ObjectInfo& object : *objects) {
    const auto path = GetObject(url.bucket, object);
    if (!path.ok()) return path.status();
    paths.push_back(*path);
  }
  std::string tree = internal::JoinPath(internal::JoinPath(dir_, "trees"),
                                        WideHash(prefix + "\n" + names));
  std::error_code ignored;
  if (fs::is_directory(tree, ignored)) return tree;
  auto folder = AtomicDirectory::Create(tree);
  if (!folder.ok()) return folder.status();
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::string link =
        folder->Path((*objects)[i].key.substr(prefix.size()));
    status = MakeFolder(fs::path(link).parent_path().string());
    if (!status.ok()) return status;
    if (symlink(paths[i].c_str(), link.c_str()) != 0) {
      return internal::SystemError("link", link);
    }
  }
  status = folder->Commit();
  // Another process may have made the same one.
  if (!status.ok() && !fs::is_directory(tree, ignored)) return status;
  return tree;
}

}  // namespace espalier
