#include "espalier/io/internal/block_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/content_hash.h"
#include "espalier/io/internal/file.h"

namespace espalier::internal {

namespace {

namespace fs = std::filesystem;

// A block file: "espblk1\n", the hash, the bytes.
constexpr char kMagic[] = "espblk1\n";
constexpr size_t kHeaderBytes = 16;
constexpr char kTemporary[] = "tmp-";
// Another process learns of a use after as much.
constexpr int64_t kTouchNs = 60'000'000'000;

using Header = std::array<uint8_t, kHeaderBytes>;

// With the name in the hash, so that no block is taken for another.
Header HeaderOf(const std::string& name, int64_t block,
                absl::Span<const uint8_t> bytes) {
  ContentHasher hasher;
  hasher.Update(absl::StrCat(name, "/", block, "\n"));
  hasher.Update(bytes);
  const uint64_t hash = hasher.Digest();
  Header header;
  std::memcpy(header.data(), kMagic, 8);
  std::memcpy(header.data() + 8, &hash, 8);
  return header;
}

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

timespec TimeOf(int64_t ns) {
  timespec time = {};
  time.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
  time.tv_nsec = static_cast<long>(ns % 1'000'000'000);
  return time;
}

// Closes itself.
class Handle {
 public:
  explicit Handle(int file) : file_(file) {}
  ~Handle() {
    if (file_ >= 0) close(file_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  int get() const { return file_; }

 private:
  const int file_;
};

bool ReadAll(int file, int64_t offset, absl::Span<uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = pread(file, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
    offset += count;
  }
  return true;
}

bool WriteAll(int file, absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("cannot create ", path));
}

// Of a process that was killed while it wrote: who writes holds a lock.
void RemoveIfLeft(const std::string& path) {
  const Handle file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.get() >= 0 && flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
    unlink(path.c_str());
  }
}

struct Old {
  int64_t used_ns = 0;
  std::string path;
  int64_t bytes = 0;
};

// The block files below `dir`; removes what killed processes left.
std::vector<Old> ListBlocks(const std::string& dir) {
  std::vector<Old> blocks;
  std::error_code error;
  for (fs::recursive_directory_iterator it(dir, error), end; it != end;
       it.increment(error)) {
    if (error) break;
    const std::string path = it->path().string();
    struct stat info = {};
    if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (absl::StartsWith(BaseName(path), kTemporary)) {
      RemoveIfLeft(path);
      continue;
    }
    blocks.push_back(
        {int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec,
         path, int64_t{info.st_size}});
  }
  return blocks;
}

}  // namespace

BlockStore::BlockStore(std::string dir, int64_t max_bytes)
    : dir_(std::move(dir)), max_bytes_(max_bytes) {}

absl::StatusOr<std::unique_ptr<BlockStore>> BlockStore::Open(
    const std::string& dir, int64_t max_bytes) {
  if (absl::Status status = MakeFolder(dir); !status.ok()) return status;
  auto store = std::unique_ptr<BlockStore>(new BlockStore(dir, max_bytes));
  MutexLock lock(store->mutex_);
  store->Trim(0);
  return store;
}

std::string BlockStore::PathOf(const std::string& name, int64_t block) const {
  return absl::StrCat(dir_, "/", name, "/", block);
}

void BlockStore::Use(const std::string& path) {
  const int64_t now = NowNs();
  {
    MutexLock lock(mutex_);
    int64_t& used = uses_[ContentHash(path)];
    const bool fresh = used > now - kTouchNs;
    used = now;
    if (fresh) return;
  }
  const timespec times[2] = {TimeOf(now), TimeOf(now)};
  utimensat(AT_FDCWD, path.c_str(), times, 0);
}

bool BlockStore::Load(const std::string& name, int64_t block,
                      absl::Span<uint8_t> bytes) {
  const std::string path = PathOf(name, block);
  const Handle file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return false;
  Header header = {};
  struct stat info = {};
  const bool right =
      fstat(file.get(), &info) == 0 &&
      info.st_size == static_cast<int64_t>(kHeaderBytes + bytes.size()) &&
      ReadAll(file.get(), 0, absl::MakeSpan(header)) &&
      ReadAll(file.get(), kHeaderBytes, bytes) &&
      header == HeaderOf(name, block, bytes);
  if (right) {
    Use(path);
  } else {
    unlink(path.c_str());
  }
  return right;
}

bool BlockStore::ReadPart(const std::string& name, int64_t block,
                          int64_t offset, absl::Span<uint8_t> bytes) {
  const std::string path = PathOf(name, block);
  const Handle file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 ||
      !ReadAll(file.get(), static_cast<int64_t>(kHeaderBytes) + offset,
               bytes)) {
    return false;
  }
  Use(path);
  return true;
}

absl::Status BlockStore::Keep(const std::string& name, int64_t block,
                              absl::Span<const uint8_t> bytes) {
  const auto size = static_cast<int64_t>(kHeaderBytes + bytes.size());
  {
    MutexLock lock(mutex_);
    // Others write too: with two processes the bound holds if each looks again
    // after a sixteenth and leaves an eighth free.
    if (total_bytes_ + size > max_bytes_ || kept_bytes_ >= max_bytes_ / 16) {
      Trim(size);
    }
    total_bytes_ += size;
    kept_bytes_ += size;
  }
  std::string temporary = absl::StrCat(dir_, "/", kTemporary, "XXXXXX");
  const Handle file(mkostemp(temporary.data(), O_CLOEXEC));
  if (file.get() < 0) return SystemError("create", temporary);
  flock(file.get(), LOCK_EX);
  const Header header = HeaderOf(name, block, bytes);
  if (!WriteAll(file.get(), header) || !WriteAll(file.get(), bytes)) {
    absl::Status status = SystemError("write", temporary);
    unlink(temporary.c_str());
    return status;
  }
  const std::string path = PathOf(name, block);
  const auto move = [&] {
    return rename(temporary.c_str(), path.c_str()) == 0 ? 0 : errno;
  };
  int error = move();
  if (error == ENOENT) {  // the file's first block
    absl::Status status = MakeFolder(absl::StrCat(dir_, "/", name));
    if (!status.ok()) {
      unlink(temporary.c_str());
      return status;
    }
    error = move();
  }
  // Somebody may have cleared the folder: then the block is not kept.
  if (error != 0 && error != ENOENT) {
    unlink(temporary.c_str());
    return absl::ErrnoToStatus(error, absl::StrCat("cannot rename ", path));
  }
  Use(path);
  return absl::OkStatus();
}

void BlockStore::Drop(const std::string& name) {
  std::error_code ignored;
  fs::remove_all(absl::StrCat(dir_, "/", name), ignored);
}

void BlockStore::Trim(int64_t more) {
  std::vector<Old> blocks = ListBlocks(dir_);
  total_bytes_ = 0;
  kept_bytes_ = 0;
  for (Old& each : blocks) {
    const auto used = uses_.find(ContentHash(each.path));
    if (used != uses_.end()) {
      each.used_ns = std::max(each.used_ns, used->second);
    }
    total_bytes_ += each.bytes;
  }
  const int64_t room = max_bytes_ - max_bytes_ / 8 - more;
  if (total_bytes_ <= room) return;
  std::sort(blocks.begin(), blocks.end(), [](const Old& a, const Old& b) {
    return std::tie(a.used_ns, a.path) < std::tie(b.used_ns, b.path);
  });
  for (const Old& each : blocks) {
    if (total_bytes_ <= room) break;
    unlink(each.path.c_str());
    uses_.erase(ContentHash(each.path));
    total_bytes_ -= each.bytes;
    // The file's folder, when that was its last block.
    rmdir(each.path.substr(0, each.path.rfind('/')).c_str());
  }
}

}  // namespace espalier::internal
