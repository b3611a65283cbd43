#include "espalier/io/atomic_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/internal/file.h"
#include "espalier/io/internal/sync.h"

namespace espalier {

namespace {

void RemoveTree(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

// Flushes every file of the tree, then the folders that name them.
absl::Status SyncTree(const std::string& root) {
  std::error_code error;
  std::filesystem::recursive_directory_iterator it(root, error);
  for (; !error && it != std::filesystem::recursive_directory_iterator();
       it.increment(error)) {
    const std::string path = it->path().string();
    absl::Status status;
    if (it->is_directory(error)) {
      status = internal::SyncDirectory(path);
    } else if (it->is_regular_file(error)) {
      status = internal::SyncFile(path);
    }
    if (!status.ok()) return status;
  }
  if (error) {
    return absl::UnknownError(
        absl::StrCat("cannot look at ", root, ": ", error.message()));
  }
  return internal::SyncDirectory(root);
}

// Itself: rename() does not put a folder in the place of a link to one.
bool IsEmptyDirectory(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(
             std::filesystem::symlink_status(path, error)) &&
         std::filesystem::is_empty(path, error) && !error;
}

bool Exists(const std::string& path) {
  struct stat status = {};
  return lstat(path.c_str(), &status) == 0;
}

int OpenFolder(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

std::string WithoutSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

absl::Status MakeParent(const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError(
        "the path of the folder to be made is empty");
  }
  const std::string parent = internal::DirName(path);
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  if (!error) return absl::OkStatus();
  return absl::UnknownError(
      absl::StrCat("cannot create ", parent, ": ", error.message()));
}

absl::Status Taken(const std::string& target) {
  return absl::AlreadyExistsError(
      absl::StrCat(target, " is there already and is not an empty folder"));
}

}  // namespace

AtomicDirectory::AtomicDirectory(std::string target, std::string temporary,
                                 Existing existing)
    : target_(std::move(target)),
      temporary_(std::move(temporary)),
      existing_(existing) {}

AtomicDirectory::AtomicDirectory(AtomicDirectory&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, "")),
      existing_(other.existing_),
      keep_(other.keep_),
      lock_(std::exchange(other.lock_, -1)),
      removed_(std::move(other.removed_)) {}

AtomicDirectory::~AtomicDirectory() {
  if (!temporary_.empty() && !keep_) RemoveTree(temporary_);
  if (lock_ >= 0) close(lock_);
}

void AtomicDirectory::RemoveAbandoned() {
  const std::string prefix =
      absl::StrCat(".", internal::BaseName(target_), ".tmp-");
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator
           it(internal::DirName(target_), error),
       end;
       !error && it != end; it.increment(error)) {
    if (absl::StartsWith(it->path().filename().string(), prefix)) {
      found.push_back(it->path().string());
    }
  }
  for (const std::string& path : found) {
    const int folder = OpenFolder(path);
    if (folder < 0) continue;
    if (flock(folder, LOCK_EX | LOCK_NB) == 0) {
      RemoveTree(path);
      if (!Exists(path)) removed_.push_back(path);
    }
    close(folder);
  }
}

absl::StatusOr<AtomicDirectory> AtomicDirectory::Create(
    const std::string& target, Existing existing) {
  std::string name = WithoutSlash(target);
  if (existing == Existing::kRefuse && Exists(name) &&
      !IsEmptyDirectory(name)) {
    return Taken(name);
  }
  if (absl::Status status = MakeParent(name); !status.ok()) return status;
  constexpr int kMaxTries = 100;
  for (int i = 0; i < kMaxTries; ++i) {
    std::string temporary = internal::TemporaryName(name, i);
    if (mkdir(temporary.c_str(), 0777) != 0) {
      if (errno != EEXIST) return internal::SystemError("create", temporary);
      continue;
    }
    AtomicDirectory result(name, std::move(temporary), existing);
    result.lock_ = OpenFolder(result.temporary_);
    // Before the lock is held another process may take the folder for an
    // abandoned one; a file system without locks has no such process.
    if (result.lock_ < 0) continue;
    if (flock(result.lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      continue;
    }
    if (!Exists(result.temporary_)) continue;
    result.RemoveAbandoned();
    return result;
  }
  return absl::AlreadyExistsError(
      absl::StrCat("cannot create a temporary folder beside ", name));
}

absl::StatusOr<AtomicDirectory> AtomicDirectory::CreatePartial(
    const std::string& target, bool resume) {
  std::string name = WithoutSlash(target);
  if (Exists(name) && !IsEmptyDirectory(name)) return Taken(name);
  if (absl::Status status = MakeParent(name); !status.ok()) return status;
  AtomicDirectory result(name, absl::StrCat(name, ".partial"),
                         Existing::kRefuse);
  const char* path = result.temporary_.c_str();
  const bool made = mkdir(path, 0777) == 0;
  if (!made && errno != EEXIST) return internal::SystemError("create", path);
  // From here on nothing is removed without Commit.
  result.keep_ = true;
  result.lock_ = OpenFolder(result.temporary_);
  if (result.lock_ < 0) return internal::SystemError("open", path);
  if (flock(result.lock_, LOCK_EX | LOCK_NB) != 0) {
    return absl::AbortedError(
        absl::StrCat(result.temporary_, ": another process writes to it"));
  }
  if (!made && !resume && !IsEmptyDirectory(result.temporary_)) {
    return absl::AlreadyExistsError(absl::StrCat(
        result.temporary_,
        " is left from an earlier run: resume it, or remove the folder"));
  }
  return result;
}

std::string AtomicDirectory::Path(const std::string& name) const {
  return internal::JoinPath(temporary_, name);
}

absl::Status AtomicDirectory::Commit() {
  if (temporary_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(target_, ": finished twice"));
  }
  if (absl::Status status = SyncTree(temporary_); !status.ok()) return status;
  // rename() puts a folder in the place of an empty one, and of no other.
  if (rename(temporary_.c_str(), target_.c_str()) != 0) {
    const bool taken =
        errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR;
    if (!taken) return internal::SystemError("rename to", target_);
    if (existing_ == Existing::kRefuse) return Taken(target_);
    if (renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(),
                  RENAME_EXCHANGE) != 0) {
      return internal::SystemError("exchange with", target_);
    }
    RemoveTree(temporary_);  // now the old one
  }
  temporary_.clear();
  return internal::SyncDirectory(internal::DirName(target_));
}

}  // namespace espalier
