#include "espalier/runtime/caching_allocator.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "espalier/runtime/check.h"
#include "espalier/runtime/guard.h"
#include "espalier/runtime/internal/arena.h"
#include "espalier/runtime/internal/asan.h"
#include "espalier/runtime/internal/block_size.h"
#include "espalier/runtime/internal/slabs.h"
#include "espalier/runtime/mutex.h"
#include "espalier/runtime/stream.h"

namespace espalier {

namespace {

using internal::Arena;
using internal::BlockBytes;
using internal::MemorySource;
using internal::Slabs;

constexpr int kPoisonByte = 0xff;  // every float type reads NaN
constexpr int64_t kSlabBytes = int64_t{64} << 10;
// Room, under AddressSanitizer, for an overrun to be seen in.
constexpr int64_t kRedZoneBytes = internal::kAsan ? 64 : 0;
// An arena grows to a new record only while less than this share of what is
// allocated lies in free whole chunks; else those give their memory first.
constexpr int64_t kSlackShare = 64;

constexpr absl::string_view kAdvice =
    "To fit, in this order: recompute activations in the backward pass; a "
    "smaller micro-batch; shard optimizer state and gradients over "
    "data-parallel ranks (ZeRO); more expert or tensor parallelism, or a "
    "better balance of experts.";

// Chunks as large as huge pages, unless the budget is small.
int64_t ChunkBytes(std::optional<int64_t> budget_bytes) {
  int64_t chunk = internal::kRangeAlignment;
  while (budget_bytes && chunk > internal::kMemoryUnit &&
         chunk * 32 > *budget_bytes) {
    chunk /= 2;
  }
  return chunk;
}

// The memory of one stream.
struct Pool {
  Pool(Stream& stream, MemorySource& source, int64_t chunk_bytes)
      : stream(stream),
        large(source, chunk_bytes),
        small(source, chunk_bytes),
        slabs(std::min(kSlabBytes, chunk_bytes)) {}
  bool Idle() { return stream.Passed(stream.Record()); }

  Stream& stream;
  Arena large;
  Arena small;  // slabs alone: they live long and would pin large holes
  Slabs slabs;
};

struct Block {
  int64_t requested = 0;  // as asked for
  int64_t counted = 0;    // as in the statistics
  int64_t extent = 0;     // as taken from the pool
  MemoryTag tag = MemoryTag::kActivations;
  Pool* pool = nullptr;
  absl::InlinedVector<Stream*, 1> users;  // other streams
};

// Freed, but other streams may still be at work on it.
struct PendingBlock {
  char* data = nullptr;
  Block block;
  absl::InlinedVector<Event, 1> events;
};

class CachingAllocator final : public Allocator {
 public:
  CachingAllocator(std::unique_ptr<MemorySource> source,
                   CachingAllocatorOptions options)
      : options_(std::move(options)),
        chunk_bytes_(ChunkBytes(options_.budget_bytes)),
        source_(std::move(source)) {}

  void* Allocate(int64_t bytes, MemoryTag tag, Stream& stream) override {
    ESPALIER_CHECK(bytes >= 0, "allocation of ", bytes, " bytes");
    if (bytes <= internal::kMaxBlockBytes) {
      if (char* data = TryAllocate(bytes, tag, stream)) return data;
      WaitForStreams();
      ReleaseCached();
      if (char* data = TryAllocate(bytes, tag, stream)) return data;
    }
    FailToFit(bytes, tag);
  }

  void Free(void* pointer) override {
    MutexLock lock(mutex_);
    char* const data = static_cast<char*>(pointer);
    const auto found = blocks_.find(data);
    if (found == blocks_.end()) return;
    PendingBlock pending{data, std::move(found->second), {}};
    blocks_.erase(found);
    Count(-1, pending.block);
    for (Stream* user : pending.block.users) {
      pending.events.push_back(user->Record());
    }
    if (!ReturnIfPassed(pending)) pending_.push_back(std::move(pending));
  }

  void RecordUse(const void* data, Stream& stream) override {
    MutexLock lock(mutex_);
    const auto found = blocks_.find(static_cast<const char*>(data));
    if (found == blocks_.end()) return;
    Block& block = found->second;
    if (&block.pool->stream == &stream) return;
    if (std::find(block.users.begin(), block.users.end(), &stream) ==
        block.users.end()) {
      block.users.push_back(&stream);
    }
  }

  void ReleaseCached() override {
    MutexLock lock(mutex_);
    ReturnPassed();
    for (const auto& [stream, pool] : pools_) {
      for (char* slab : pool->slabs.TakeEmpty()) pool->small.Give(slab);
    }
    ReleaseIdle(INT64_MAX, nullptr);
    record_ = Reserved();
  }

  MemoryStats stats() const override {
    MutexLock lock(mutex_);
    return CurrentStats();
  }

  void ResetPeak() override {
    MutexLock lock(mutex_);
    stats_.peak_allocated = stats_.allocated;
    stats_.peak_reserved = Reserved();
    stats_.peak_by_tag = stats_.by_tag;
  }

 private:
  char* TryAllocate(int64_t bytes, MemoryTag tag, Stream& stream) {
    MutexLock lock(mutex_);
    ReturnPassed();
    Block block{bytes, BlockBytes(bytes), BlockBytes(bytes + kRedZoneBytes),
                tag,   &PoolOf(stream),   {}};
    if (options_.budget_bytes &&
        block.counted > *options_.budget_bytes - stats_.allocated) {
      return nullptr;
    }
    Pool& pool = *block.pool;
    char* const data =
        pool.slabs.Fits(block.extent)
            ? pool.slabs.Take(block.extent,
                              [&](int64_t slab_bytes)
                                  ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                                    return TakeFrom(pool.small, slab_bytes);
                                  })
            : TakeFrom(pool.large, block.extent);
    if (data == nullptr) return nullptr;
    if (options_.host_memory) {
      internal::ForbidAccess(data, block.extent);
      internal::AllowAccess(data, bytes);
    }
    Poison(data, block);
    Count(+1, block);
    ++stats_.num_allocations;
    stats_.peak_reserved = std::max(stats_.peak_reserved, Reserved());
    blocks_.emplace(data, std::move(block));
    return data;
  }

  char* TakeFrom(Arena& arena, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (char* data = arena.TakeWarm(bytes)) return data;
    const auto place = arena.FindPlace(bytes);
    if (!place) return nullptr;
    const int64_t grown = Reserved() + place->commit_bytes;
    const int64_t wanted = stats_.allocated + bytes;
    int64_t limit =
        std::max(record_, wanted + wanted / kSlackShare + chunk_bytes_);
    if (options_.budget_bytes) limit = std::min(limit, ReservedBudget());
    if (grown > limit) ReleaseIdle(grown - limit, place->data);
    if (options_.budget_bytes &&
        Reserved() + place->commit_bytes > ReservedBudget()) {
      return nullptr;
    }
    char* const data = arena.TakePlace(*place, bytes);
    record_ = std::max(record_, Reserved());
    return data;
  }

  int64_t ReservedBudget() const {
    return std::max(*options_.budget_bytes, 4 * internal::kMemoryUnit);
  }

  // Takes memory back from free blocks whose streams have nothing queued.
  void ReleaseIdle(int64_t bytes, const char* keep)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const auto& [stream, pool] : pools_) {
      if (!pool->Idle()) continue;
      bytes -= pool->large.Release(bytes, keep);
      if (bytes > 0) bytes -= pool->small.Release(bytes, keep);
      if (bytes <= 0) return;
    }
  }

  Pool& PoolOf(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const auto& [owner, pool] : pools_) {
      if (owner == &stream) return *pool;
    }
    pools_.emplace_back(&stream,
                        std::make_unique<Pool>(stream, *source_, chunk_bytes_));
    return *pools_.back().second;
  }

  void ReturnPassed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    size_t kept = 0;
    for (size_t i = 0; i < pending_.size(); ++i) {
      if (ReturnIfPassed(pending_[i])) continue;
      if (kept != i) pending_[kept] = std::move(pending_[i]);
      ++kept;
    }
    pending_.resize(kept);
  }

  bool ReturnIfPassed(const PendingBlock& pending)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const Event& event : pending.events) {
      if (!event.stream->Passed(event)) return false;
    }
    const Block& block = pending.block;
    Poison(pending.data, block);
    if (options_.host_memory) {
      internal::ForbidAccess(pending.data, block.extent);
    }
    Pool& pool = *block.pool;
    if (!pool.slabs.Fits(block.extent)) {
      pool.large.Give(pending.data);
    } else if (char* slab = pool.slabs.Give(pending.data, block.extent)) {
      pool.small.Give(slab);
    }
    return true;
  }

  // In the order of the block's stream. A failure there is the stream's own:
  // it keeps it and reports it.
  void Poison(char* data, const Block& block) {
    if (!options_.poison || block.requested == 0) return;
    if (options_.fill) {
      options_.fill(block.pool->stream, data, block.requested, kPoisonByte);
      return;
    }
    const auto bytes = static_cast<size_t>(block.requested);
    const Access access{data, block.requested, /*write=*/true};
    (void)internal::Guard([&] {
      block.pool->stream.Enqueue(
          "poison", absl::MakeConstSpan(&access, 1),
          [data, bytes] { std::memset(data, kPoisonByte, bytes); });
    });
  }

  void WaitForStreams() {
    std::vector<Stream*> streams;
    {
      MutexLock lock(mutex_);
      for (const auto& [stream, pool] : pools_) streams.push_back(stream);
      for (const PendingBlock& pending : pending_) {
        streams.insert(streams.end(), pending.block.users.begin(),
                       pending.block.users.end());
      }
    }
    for (Stream* stream : streams) {
      (void)internal::Guard([&] { stream->Synchronize(); });
    }
  }

  void Count(int64_t sign, const Block& block)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto tag = static_cast<size_t>(block.tag);
    stats_.requested += sign * block.requested;
    stats_.allocated += sign * block.counted;
    stats_.by_tag[tag] += sign * block.counted;
    stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
    stats_.peak_by_tag[tag] =
        std::max(stats_.peak_by_tag[tag], stats_.by_tag[tag]);
  }

  int64_t Reserved() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    int64_t bytes = 0;
    for (const auto& [stream, pool] : pools_) {
      bytes += pool->large.committed_bytes() + pool->small.committed_bytes();
    }
    return bytes;
  }

  MemoryStats CurrentStats() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    MemoryStats stats = stats_;
    stats.reserved = Reserved();
    for (const auto& [stream, pool] : pools_) {
      stats.largest_free =
          std::max(stats.largest_free, pool->large.LargestFreeBytes());
    }
    if (stats.peak_allocated > 0) {
      stats.fragmentation_at_peak =
          static_cast<double>(stats.peak_reserved) /
              static_cast<double>(stats.peak_allocated) -
          1;
    }
    return stats;
  }

  [[noreturn]] void FailToFit(int64_t bytes, MemoryTag tag) {
    MemoryStats now;
    std::string reason;
    {
      MutexLock lock(mutex_);
      now = CurrentStats();
      reason = source_->TakeRefusal();
    }
    const std::string budget =
        options_.budget_bytes
            ? absl::StrFormat("budget %.1f MiB",
                              *options_.budget_bytes / 1048576.0)
            : "no budget set";
    if (!reason.empty()) reason.insert(0, "; ");
    internal::Fail(absl::ResourceExhaustedError(absl::StrFormat(
        "out of memory on %s: %d bytes (%.1f MiB) for %s do not fit (%s%s)\n"
        "%s\n%s",
        options_.device, bytes, bytes / 1048576.0, ToString(tag), budget,
        reason, ToString(now), kAdvice)));
  }

  const CachingAllocatorOptions options_;
  const int64_t chunk_bytes_;
  mutable Mutex mutex_;
  const std::unique_ptr<MemorySource> source_ ABSL_PT_GUARDED_BY(mutex_);
  // Few streams, so searched in turn; in the order of their first use.
  std::vector<std::pair<Stream*, std::unique_ptr<Pool>>> pools_
      ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<const char*, Block> blocks_ ABSL_GUARDED_BY(mutex_);
  std::vector<PendingBlock> pending_ ABSL_GUARDED_BY(mutex_);
  MemoryStats stats_ ABSL_GUARDED_BY(mutex_);   // `reserved` is summed up
  int64_t record_ ABSL_GUARDED_BY(mutex_) = 0;  // highest `reserved` so far
};

}  // namespace

std::unique_ptr<Allocator> MakeCachingAllocator(
    std::unique_ptr<internal::MemorySource> source,
    CachingAllocatorOptions options) {
  return std::make_unique<CachingAllocator>(std::move(source),
                                            std::move(options));
}

}  // namespace espalier
