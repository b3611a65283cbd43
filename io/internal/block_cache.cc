#include "espalier/io/internal/block_cache.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "espalier/io/content_hash.h"
#include "espalier/io/internal/file.h"

namespace espalier::internal {

namespace {

constexpr int64_t kMinBlocks = 16;
// Of one fetch: enough for a store's parallel parts.
constexpr int64_t kMaxFetchBytes = int64_t{64} << 20;

}  // namespace

BlockCache::BlockCache(const Options& options, BlockOrigin& origin,
                       std::unique_ptr<BlockStore> store)
    : options_(options),
      max_blocks_(
          std::max(options.max_bytes / options.block_bytes, kMinBlocks)),
      origin_(origin),
      store_(std::move(store)) {}

BlockCache::~BlockCache() = default;

absl::StatusOr<std::unique_ptr<BlockCache>> BlockCache::Create(
    const Options& options, BlockOrigin& origin) {
  if (options.block_bytes < 1 || options.max_bytes < 0 ||
      options.ahead_bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cache: blocks of ", options.block_bytes, " bytes, ", options.max_bytes,
        " in all, ", options.ahead_bytes, " ahead"));
  }
  auto store = BlockStore::Open(
      JoinPath(options.dir, "blocks"),
      std::max(options.max_bytes, kMinBlocks * options.block_bytes));
  if (!store.ok()) return store.status();
  return std::unique_ptr<BlockCache>(
      new BlockCache(options, origin, *std::move(store)));
}

BlockCacheCounts BlockCache::counts() const {
  std::vector<File*> files;
  BlockCacheCounts counts;
  {
    MutexLock lock(mutex_);
    counts = counts_;
    for (const auto& [number, file] : files_) files.push_back(file.get());
  }
  for (File* file : files) {
    MutexLock lock(file->checking);
    if (file->check == nullptr || file->has_checksum) {
      const bool compared = file->check != nullptr && file->check->compared();
      ++(compared ? counts.num_compared : counts.num_partly_read);
    } else {
      ++counts.num_without_checksum;
    }
  }
  return counts;
}

BlockCache::File& BlockCache::FileOf(uint32_t number) {
  std::unique_ptr<File>& file = files_[number];
  if (file == nullptr) {
    file = std::make_unique<File>();
    file->number = number;
    file->name = WideHash(
        absl::StrCat(origin_.Identity(number), "\n", options_.block_bytes));
    file->bytes = origin_.Bytes(number);
    file->num_blocks = (file->bytes - 1) / options_.block_bytes + 1;
  }
  return *file;
}

int64_t BlockCache::Claim(const File& file, int64_t first, int64_t last) {
  const int64_t most = std::max<int64_t>(
      std::min(kMaxFetchBytes / options_.block_bytes, max_blocks_ / 4), 1);
  const int64_t end = std::min(last + 1, first + most);
  int64_t block = first;
  while (block < end && !known_.contains(Key(file.number, block)) &&
         claimed_.insert(Key(file.number, block)).second) {
    ++block;
  }
  return block - first;
}

absl::Span<uint8_t> BlockCache::BlockOf(const File& file, Run& run,
                                        int64_t block) const {
  // The last block of a file may be short.
  const int64_t size =
      std::min(options_.block_bytes, file.bytes - block * options_.block_bytes);
  return absl::MakeSpan(run.bytes).subspan(
      static_cast<size_t>((block - run.first) * options_.block_bytes),
      static_cast<size_t>(size));
}

absl::Status BlockCache::FetchRange(File& file, Run& run, int64_t first,
                                    int64_t end, bool ahead) {
  const absl::Span<uint8_t> last = BlockOf(file, run, end - 1);
  uint8_t* const begin = BlockOf(file, run, first).data();
  const auto bytes = absl::MakeSpan(begin, last.data() + last.size());
  absl::Status status;
  if (ahead) {
    status =
        origin_.Fetch(file.number, first * options_.block_bytes, bytes, true);
  } else {
    MutexLock lock(fetching_);
    status =
        origin_.Fetch(file.number, first * options_.block_bytes, bytes, false);
  }
  for (int64_t block = first; status.ok() && block < end; ++block) {
    status = store_->Keep(file.name, block, BlockOf(file, run, block));
  }
  if (!status.ok()) return status;
  MutexLock lock(mutex_);
  counts_.fetched_bytes += static_cast<int64_t>(bytes.size());
  if (ahead) counts_.ahead_bytes += static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

absl::Status BlockCache::FillAndKeep(File& file, Run& run, bool ahead) {
  const int64_t end = run.first + run.count;
  int64_t missing = run.first;  // first of those that are not in the store
  int64_t reused_bytes = 0;
  for (int64_t block = run.first; block <= end; ++block) {
    if (block < end &&
        !store_->Load(file.name, block, BlockOf(file, run, block))) {
      continue;
    }
    if (missing < block) {
      absl::Status status = FetchRange(file, run, missing, block, ahead);
      if (!status.ok()) return status;
    }
    if (block < end) {
      reused_bytes += static_cast<int64_t>(BlockOf(file, run, block).size());
    }
    missing = block + 1;
  }
  MutexLock lock(mutex_);
  counts_.reused_bytes += reused_bytes;
  return absl::OkStatus();
}

absl::StatusOr<ObjectChecksum> BlockCache::AskChecksum(const File& file,
                                                       bool ahead) {
  if (ahead) return origin_.Checksum(file.number, true);
  MutexLock lock(fetching_);
  return origin_.Checksum(file.number, false);
}

absl::Status BlockCache::TakeChecked(File& file, int64_t block,
                                     absl::Span<const uint8_t> bytes) {
  absl::Status status = file.check->Take(block, bytes);
  Run again;
  again.bytes.resize(static_cast<size_t>(options_.block_bytes));
  while (status.ok() && (again.first = file.check->Wanted()) >= 0) {
    const auto wanted = BlockOf(file, again, again.first);
    // It gave way: it passes again when it is read again.
    if (!store_->Load(file.name, again.first, wanted)) break;
    status = file.check->Take(again.first, wanted);
  }
  return status;
}

absl::Status BlockCache::Check(File& file, Run& run, bool ahead, bool* wrong) {
  MutexLock lock(file.checking);
  const int64_t end = run.first + run.count;
  absl::Status status;
  if (file.check != nullptr) {
    for (int64_t block = run.first; status.ok() && block < end; ++block) {
      status = TakeChecked(file, block, BlockOf(file, run, block));
    }
    *wrong = !status.ok();
    return status;
  }
  for (int64_t block = run.first; block < end; ++block) {
    file.passed.insert(block);
  }
  // Of what is read a little of, nobody asks the checksum; but it is asked
  // before the first blocks give way.
  const auto num_passed = static_cast<int64_t>(file.passed.size());
  if (num_passed < std::min(file.num_blocks / 4, max_blocks_ / 8)) {
    return absl::OkStatus();
  }
  const auto checksum = AskChecksum(file, ahead);
  if (!checksum.ok()) return checksum.status();
  file.has_checksum = checksum->kind != ObjectChecksum::Kind::kNone;
  file.check = std::make_unique<ObjectCheck>(*checksum, file.bytes,
                                             options_.block_bytes);
  Run before;
  before.bytes.resize(static_cast<size_t>(options_.block_bytes));
  for (const int64_t block : file.passed) {
    absl::Span<const uint8_t> bytes;
    if (block >= run.first && block < end) {
      bytes = BlockOf(file, run, block);
    } else {
      before.first = block;
      const auto loaded = BlockOf(file, before, block);
      if (!store_->Load(file.name, block, loaded)) continue;
      bytes = loaded;
    }
    status = TakeChecked(file, block, bytes);
    if (!status.ok()) break;
  }
  file.passed.clear();
  *wrong = !status.ok();
  return status;
}

absl::Status BlockCache::Fill(File& file, Run& run, bool ahead) {
  const int64_t begin = run.first * options_.block_bytes;
  const int64_t end =
      std::min(begin + run.count * options_.block_bytes, file.bytes);
  run.bytes.resize(static_cast<size_t>(end - begin));
  absl::Status status = FillAndKeep(file, run, ahead);
  bool lost = false;
  if (status.ok()) {
    status = Check(file, run, ahead, &lost);
  }
  if (lost) {
    status = absl::DataLossError(
        absl::StrCat(origin_.Name(file.number), ": ", status.message(),
                     "; its blocks are removed from ", options_.dir,
                     ": what was made of them is wrong, try again"));
    store_->Drop(file.name);
  }
  MutexLock lock(mutex_);
  if (lost) file.lost = status;
  for (int64_t block = run.first; block < run.first + run.count; ++block) {
    claimed_.erase(Key(file.number, block));
    if (status.ok()) known_.insert(Key(file.number, block));
  }
  arrived_.NotifyAll();
  return status;
}

void BlockCache::ReadAhead(File& file, int64_t offset, int64_t end) {
  Course& course = file.course;
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
      std::min(wanted / options_.block_bytes, max_blocks_ / 4);
  if (course.streak < 2 || window == 0) return;
  const int64_t next = (end + options_.block_bytes - 1) / options_.block_bytes;
  if (course.ahead_to < next || course.ahead_to > next + window) {
    course.ahead_to = next;
  }
  // In halves of the window, so that requests are large.
  if (course.ahead_to > next + window / 2) return;
  const int64_t last = std::min(next + window, file.num_blocks) - 1;
  while (course.ahead_to <= last) {
    const int64_t first = course.ahead_to;
    const int64_t count = Claim(file, first, last);
    course.ahead_to += std::max<int64_t>(count, 1);
    if (count == 0) continue;
    worker_.Post([this, &file, first, count] {
      Run run = {first, count, {}};
      // Who reads there tries again and is told.
      Fill(file, run, true).IgnoreError();
    });
  }
}

absl::Status BlockCache::Read(uint32_t number, int64_t offset,
                              absl::Span<uint8_t> bytes) {
  if (bytes.empty()) return absl::OkStatus();
  const int64_t size = options_.block_bytes;
  const int64_t end = offset + static_cast<int64_t>(bytes.size());
  const int64_t last = (end - 1) / size;
  // Of the wanted bytes, those in blocks [block, block + count).
  const auto wanted = [&](int64_t block, int64_t count) {
    const int64_t from = std::max(offset, block * size);
    const int64_t to = std::min(end, (block + count) * size);
    return bytes.subspan(static_cast<size_t>(from - offset),
                         static_cast<size_t>(to - from));
  };
  mutex_.Lock();
  File& file = FileOf(number);
  absl::Status status = file.lost;
  for (int64_t block = offset / size; status.ok() && block <= last;) {
    const Key key(number, block);
    const int64_t skip = std::max<int64_t>(offset - block * size, 0);
    if (claimed_.contains(key)) {
      arrived_.Wait(mutex_);
      status = file.lost;
    } else if (known_.contains(key)) {
      mutex_.Unlock();
      const bool there =
          store_->ReadPart(file.name, block, skip, wanted(block, 1));
      mutex_.Lock();
      if (there) {
        ++block;
      } else {
        known_.erase(key);  // it gave way
      }
    } else {
      Run run = {block, Claim(file, block, last), {}};
      mutex_.Unlock();
      status = Fill(file, run, false);
      const auto part = wanted(run.first, run.count);
      if (status.ok()) {
        std::copy_n(run.bytes.begin() + skip, part.size(), part.begin());
      }
      mutex_.Lock();
      block += run.count;
    }
  }
  if (status.ok()) ReadAhead(file, offset, end);
  mutex_.Unlock();
  return status;
}

}  // namespace espalier::internal
