#include "espalier/io/output_place.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/atomic_directory.h"
#include "espalier/io/internal/disk_space.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/internal/sync.h"

namespace espalier {

namespace {

// Whether the open file is still the one of this name.
bool HasName(int file, const std::string& path) {
  struct stat opened = {};
  struct stat named = {};
  return fstat(file, &opened) == 0 && lstat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

absl::Status Held(int file, const std::string& target,
                  const std::string& lock_path) {
  char text[24] = {};
  int64_t process = 0;
  const bool known = pread(file, text, sizeof(text) - 1, 0) > 0 &&
                     absl::SimpleAtoi(text, &process);
  return absl::AbortedError(
      absl::StrCat(target, ": another run",
                   known ? absl::StrCat(", process ", process, ",") : "",
                   " is going to write this folder (", lock_path,
                   " is locked); name another one or wait for its end"));
}

}  // namespace

OutputPlace::OutputPlace(std::string target, std::string lock_path, int lock)
    : target_(std::move(target)),
      lock_path_(std::move(lock_path)),
      lock_(lock) {}

OutputPlace::OutputPlace(OutputPlace&& other) noexcept
    : target_(std::move(other.target_)),
      lock_path_(std::move(other.lock_path_)),
      lock_(std::exchange(other.lock_, -1)) {}

OutputPlace::~OutputPlace() {
  if (lock_ < 0) return;
  // Before the lock is let go: whoever takes it then sees that it has no name.
  unlink(lock_path_.c_str());
  close(lock_);
}

absl::StatusOr<OutputPlace> OutputPlace::Hold(const std::string& target) {
  std::string name = target;
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  {
    // Made and taken away again.
    const auto rehearsal = AtomicDirectory::Create(name);
    if (!rehearsal.ok()) return rehearsal.status();
  }
  const std::string lock_path =
      internal::JoinPath(internal::DirName(name),
                         absl::StrCat(".", internal::BaseName(name), ".lock"));
  constexpr int kMaxTries = 100;
  for (int i = 0; i < kMaxTries; ++i) {
    const int file = open(lock_path.c_str(),
                          O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file < 0) return internal::SystemError("create", lock_path);
    OutputPlace place(name, lock_path, file);
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
      const bool held = errno == EWOULDBLOCK;
      const absl::Status status = Held(file, name, lock_path);
      // Not this object's to remove.
      if (held) close(std::exchange(place.lock_, -1));
      if (held) return status;
      return place;
    }
    if (!HasName(file, lock_path)) {  // its holder has just removed it
      close(std::exchange(place.lock_, -1));
      continue;
    }
    const std::string process = absl::StrCat(getpid(), "\n");
    // For the message of another run only.
    if (ftruncate(file, 0) == 0) {
      const ssize_t wrote = pwrite(file, process.data(), process.size(), 0);
      (void)wrote;
    }
    return place;
  }
  return absl::AbortedError(absl::StrCat(name, ": ", lock_path,
                                         " is taken and removed all the time"));
}

absl::Status OutputPlace::CheckSpace(int64_t bytes) const {
  return internal::CheckSpace(internal::DirName(target_), target_, bytes);
}

}  // namespace espalier
