#include "espalier/io/object_cache.h"

#include <fcntl.h>
#include <sys/file.h>
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

// Of a copy that is not whole.
constexpr char kPartial[] = ".partial";

// Whether a process writes it.
bool IsLocked(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  const bool locked = file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0;
  if (file >= 0) close(file);
  return locked;
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
  std::set<std::string> wanted = in_use_;
  int64_t missing = 0;
  const std::string folder = internal::JoinPath(dir_, "objects");
  for (const ObjectInfo& object : objects) {
    const std::string name = NameOf(bucket, object);
    std::error_code ignored;
    const bool there = fs::exists(internal::JoinPath(folder, name), ignored);
    if (wanted.insert(name).second && !there) missing += object.size;
  }
  done_bytes_ = 0;
  total_bytes_ = missing;
  if (max_bytes_ == 0) return absl::OkStatus();
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
    const std::string name = entry.path().filename().string();
    if (absl::EndsWith(name, kPartial)) {
      const std::string whole =
          name.substr(0, name.size() + 1 - sizeof(kPartial));
      // Counted as missing, or no other's.
      if (wanted.count(whole) > 0) continue;
      if (!IsLocked(entry.path().string())) old.push_back({used, name, size});
    } else if (wanted.count(name) == 0) {
      old.push_back({used, name, size});
    }
    total += size;
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

absl::Status ObjectCache::CopyTo(const std::string& bucket,
                                 const ObjectInfo& object,
                                 const std::string& partial, int file) {
  struct stat info {};
  if (fstat(file, &info) != 0) return internal::SystemError("read", partial);
  // The last piece before a crash may not have reached the disk.
  const int64_t piece = store_.parallel_bytes();
  int64_t at =
      std::max<int64_t>(
          std::min<int64_t>(info.st_size, object.size) / piece - 1, 0) *
      piece;
  if (ftruncate(file, at) != 0) {
    return internal::SystemError("truncate", partial);
  }
  // Space that is taken at once, without the size that tells what is here.
  if (object.size > 0 &&
      fallocate(file, FALLOC_FL_KEEP_SIZE, 0, object.size) != 0 &&
      errno == ENOSPC) {
    return absl::ResourceExhaustedError(absl::StrCat(
        partial, ": no space for the ", object.size, " bytes of s3://", bucket,
        "/", object.key, "; name another folder with --cache-dir"));
  }
  done_bytes_ += at;
  std::vector<uint8_t> bytes(static_cast<size_t>(std::min(piece, object.size)));
  while (at < object.size) {
    const auto part = absl::MakeSpan(bytes).subspan(
        0, static_cast<size_t>(std::min(piece, object.size - at)));
    absl::Status status = store_.ReadInto(bucket, object, at, part);
    if (!status.ok()) return status;
    for (size_t done = 0; done < part.size();) {
      const ssize_t count = pwrite(file, part.data() + done, part.size() - done,
                                   at + static_cast<int64_t>(done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return internal::SystemError("write", partial);
      done += static_cast<size_t>(count);
    }
    if (fdatasync(file) != 0) return internal::SystemError("write", partial);
    at += static_cast<int64_t>(part.size());
    done_bytes_ += static_cast<int64_t>(part.size());
    if (progress_) progress_(done_bytes_, total_bytes_);
  }
  return absl::OkStatus();
}

absl::Status ObjectCache::Copy(const std::string& bucket,
                               const ObjectInfo& object,
                               const std::string& path) {
  const std::string partial = absl::StrCat(path, kPartial);
  int file = -1;
  struct stat info {};
  for (bool same = false; !same;) {
    file = open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) return internal::SystemError("create", partial);
    // Another process that copies the same is waited for, and may have renamed
    // the file or removed it.
    flock(file, LOCK_EX);
    struct stat named {};
    same = fstat(file, &info) == 0 && stat(partial.c_str(), &named) == 0 &&
           named.st_ino == info.st_ino;
    if (!same) close(file);
  }
  absl::Status status;
  if (stat(path.c_str(), &info) == 0 && info.st_size == object.size) {
    unlink(partial.c_str());
  } else {
    status = CopyTo(bucket, object, partial, file);
    bool compared = false;
    if (status.ok()) {
      status = store_.Compare(bucket, object, partial, &compared);
    }
    if (status.ok() && rename(partial.c_str(), path.c_str()) != 0) {
      status = internal::SystemError("rename", partial);
    }
    if (status.ok()) {
      ++num_fetched_;
      num_compared_ += compared;
    }
  }
  // What goes on next time stays: not what is of another version or wrong.
  if (!status.ok() && (!absl::IsUnavailable(status) ||
                       (fstat(file, &info) == 0 && info.st_size == 0))) {
    unlink(partial.c_str());
  }
  close(file);
  return status;
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
  if (absl::Status status = Copy(bucket, object, path); !status.ok()) {
    return status;
  }
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
