#include "espalier/io/internal/block_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/file.h"

namespace espalier::internal {

namespace {

constexpr int64_t kMinSlots = 16;

// Moves all of `bytes` by pread or pwrite.
template <typename Byte, typename Move>
absl::Status MoveAll(absl::Span<Byte> bytes, int64_t offset,
                     const std::string& what, Move move) {
  while (!bytes.empty()) {
    const ssize_t moved = move(bytes.data(), bytes.size(), offset);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) {
      if (moved == 0) errno = EIO;
      return SystemError("use the cache file in", what);
    }
    bytes.remove_prefix(static_cast<size_t>(moved));
    offset += moved;
  }
  return absl::OkStatus();
}

}  // namespace

BlockCache::BlockCache(const Options& options, Fetch fetch, int handle)
    : options_(options),
      max_slots_(std::max(options.max_bytes / options.block_bytes, kMinSlots)),
      fetch_(std::move(fetch)),
      handle_(handle) {}

BlockCache::~BlockCache() { close(handle_); }

absl::StatusOr<std::unique_ptr<BlockCache>> BlockCache::Create(
    const Options& options, Fetch fetch) {
  if (options.block_bytes < 1 || options.max_bytes < 0 ||
      options.ahead_bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cache: blocks of ", options.block_bytes, " bytes, ", options.max_bytes,
        " in all, ", options.ahead_bytes, " ahead"));
  }
  std::error_code error;
  std::filesystem::create_directories(options.dir, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(),
                               absl::StrCat("cannot create ", options.dir));
  }
  std::string path = JoinPath(options.dir, "blocks-XXXXXX");
  const int handle = mkostemp(path.data(), O_CLOEXEC);
  if (handle < 0) return SystemError("create", path);
  unlink(path.c_str());
  return std::unique_ptr<BlockCache>(
      new BlockCache(options, std::move(fetch), handle));
}

int64_t BlockCache::fetched_bytes() const {
  MutexLock lock(mutex_);
  return fetched_bytes_;
}

int64_t BlockCache::ahead_bytes() const {
  MutexLock lock(mutex_);
  return ahead_bytes_;
}

int64_t BlockCache::Claim(uint32_t file, int64_t first, int64_t last) {
  // Of one call no more than what stays in the cache until it is copied.
  const int64_t end = std::min(last + 1, first + max_slots_ / 4);
  int64_t block = first;
  while (block < end && blocks_.try_emplace(Key(file, block)).second) ++block;
  return block - first;
}

absl::Status BlockCache::Keep(const Key& key, absl::Span<const uint8_t> bytes) {
  int64_t slot = 0;
  if (free_slots_.empty() && num_slots_ < max_slots_) {
    slot = num_slots_++;
  } else {
    if (free_slots_.empty()) {
      const auto old = blocks_.find(uses_.back());
      free_slots_.push_back(old->second.slot);
      blocks_.erase(old);
      uses_.pop_back();
    }
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  absl::Status status =
      MoveAll(bytes, slot * options_.block_bytes, options_.dir,
              [&](const uint8_t* data, size_t count, int64_t at) {
                return pwrite(handle_, data, count, at);
              });
  if (!status.ok()) {
    free_slots_.push_back(slot);
    return status;
  }
  uses_.push_front(key);
  Block& block = blocks_[key];
  block.slot = slot;
  block.use = uses_.begin();
  return absl::OkStatus();
}

absl::Status BlockCache::FetchBlocks(uint32_t file, int64_t file_bytes,
                                     int64_t first, int64_t count, bool ahead) {
  const int64_t begin = first * options_.block_bytes;
  const int64_t end =
      std::min(begin + count * options_.block_bytes, file_bytes);
  std::vector<uint8_t> bytes(static_cast<size_t>(end - begin));
  absl::Status status;
  if (ahead) {
    status = fetch_(file, begin, absl::MakeSpan(bytes), true);
  } else {
    MutexLock lock(fetching_);
    status = fetch_(file, begin, absl::MakeSpan(bytes), false);
  }
  MutexLock lock(mutex_);
  for (int64_t i = 0; i < count; ++i) {
    const Key key(file, first + i);
    if (status.ok()) {
      // The last block of a file may be short.
      status = Keep(key, absl::MakeConstSpan(bytes).subspan(
                             static_cast<size_t>(i * options_.block_bytes),
                             static_cast<size_t>(options_.block_bytes)));
    }
    if (!status.ok()) {
      const auto found = blocks_.find(key);
      if (found != blocks_.end() && found->second.slot < 0)
        blocks_.erase(found);
    }
  }
  if (status.ok()) {
    fetched_bytes_ += end - begin;
    if (ahead) ahead_bytes_ += end - begin;
  }
  arrived_.NotifyAll();
  return status;
}

absl::Status BlockCache::Copy(const Key& key, int64_t offset,
                              absl::Span<uint8_t> bytes) {
  Block& block = blocks_[key];
  uses_.splice(uses_.begin(), uses_, block.use);
  return MoveAll(bytes, block.slot * options_.block_bytes + offset,
                 options_.dir, [&](uint8_t* data, size_t count, int64_t at) {
                   return pread(handle_, data, count, at);
                 });
}

void BlockCache::ReadAhead(uint32_t file, int64_t file_bytes, int64_t offset,
                           int64_t end) {
  Course& course = courses_[file];
  if (offset == course.next) {
    ++course.streak;
  } else {
    course.streak = 0;
    course.begin = offset;
  }
  course.next = end;
  // A length and a header are no course yet, and what was read a little of is
  // not fetched a lot of.
  const int64_t wanted =
      std::min(options_.ahead_bytes, 2 * (end - course.begin));
  const int64_t window =
      std::min(wanted / options_.block_bytes, max_slots_ / 4);
  if (course.streak < 2 || window == 0) return;
  const int64_t next = (end + options_.block_bytes - 1) / options_.block_bytes;
  const int64_t num_blocks =
      (file_bytes + options_.block_bytes - 1) / options_.block_bytes;
  if (course.ahead_to < next || course.ahead_to > next + window) {
    course.ahead_to = next;
  }
  // In halves of the window, so that requests are large.
  if (course.ahead_to > next + window / 2) return;
  const int64_t last = std::min(next + window, num_blocks) - 1;
  while (course.ahead_to <= last) {
    const int64_t first = course.ahead_to;
    const int64_t count = Claim(file, first, last);
    course.ahead_to += std::max<int64_t>(count, 1);
    if (count == 0) continue;
    worker_.Post([this, file, file_bytes, first, count] {
      // Who reads there tries again and is told.
      FetchBlocks(file, file_bytes, first, count, true).IgnoreError();
    });
  }
}

absl::Status BlockCache::Read(uint32_t file, int64_t file_bytes, int64_t offset,
                              absl::Span<uint8_t> bytes) {
  if (bytes.empty()) return absl::OkStatus();
  const int64_t size = options_.block_bytes;
  const int64_t end = offset + static_cast<int64_t>(bytes.size());
  const int64_t last = (end - 1) / size;
  int64_t block = offset / size;
  mutex_.Lock();
  absl::Status status;
  while (status.ok() && block <= last) {
    const auto found = blocks_.find(Key(file, block));
    if (found == blocks_.end()) {
      const int64_t count = Claim(file, block, last);
      mutex_.Unlock();
      status = FetchBlocks(file, file_bytes, block, count, false);
      mutex_.Lock();
    } else if (found->second.slot < 0) {
      arrived_.Wait(mutex_);
    } else {
      const int64_t begin = std::max(offset, block * size);
      const int64_t count = std::min(end, (block + 1) * size) - begin;
      status = Copy(found->first, begin - block * size,
                    bytes.subspan(static_cast<size_t>(begin - offset),
                                  static_cast<size_t>(count)));
      ++block;
    }
  }
  if (status.ok()) ReadAhead(file, file_bytes, offset, end);
  mutex_.Unlock();
  return status;
}

}  // namespace espalier::internal
