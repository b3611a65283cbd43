#include "espalier/runtime/internal/host_allocator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

#include "espalier/runtime/check.h"

namespace espalier::internal {

namespace {

constexpr int64_t kAlignment = 64;
constexpr int kPoisonByte = 0xff;  // every float type reads NaN

class HostAllocator final : public Allocator {
 public:
  HostAllocator(std::optional<int64_t> budget_bytes, bool poison)
      : budget_bytes_(budget_bytes), poison_(poison) {}

  void* Allocate(int64_t bytes, MemoryTag tag, Stream&) override {
    const int64_t rounded = std::max(
        kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    absl::MutexLock lock(&mutex_);
    if (budget_bytes_ && stats_.allocated + rounded > *budget_bytes_) {
      Fail(absl::ResourceExhaustedError(
          absl::StrCat("memory budget: ", bytes, " bytes for ", ToString(tag),
                       ", budget ", *budget_bytes_, "\n", ToString(stats_))));
    }
    void* data = std::aligned_alloc(kAlignment, static_cast<size_t>(rounded));
    if (data == nullptr) {
      Fail(absl::ResourceExhaustedError(absl::StrCat(
          "system refused ", bytes, " bytes\n", ToString(stats_))));
    }
    if (poison_) {
      std::memset(data, kPoisonByte, static_cast<size_t>(rounded));
    }
    blocks_[data] = {rounded, tag};
    Count(rounded, tag);
    ++stats_.num_allocations;
    return data;
  }

  void Free(void* data) override {
    absl::MutexLock lock(&mutex_);
    const auto it = blocks_.find(data);
    if (it == blocks_.end()) return;
    if (poison_) {
      std::memset(data, kPoisonByte, static_cast<size_t>(it->second.bytes));
    }
    Count(-it->second.bytes, it->second.tag);
    blocks_.erase(it);
    std::free(data);
  }

  void RecordUse(const void*, Stream&) override {}
  void ReleaseCached() override {}

  MemoryStats stats() const override {
    absl::MutexLock lock(&mutex_);
    return stats_;
  }

  void ResetPeak() override {
    absl::MutexLock lock(&mutex_);
    stats_.peak_allocated = stats_.allocated;
    stats_.peak_reserved = stats_.reserved;
    stats_.peak_by_tag = stats_.by_tag;
  }

 private:
  struct Block {
    int64_t bytes;
    MemoryTag tag;
  };

  void Count(int64_t bytes, MemoryTag tag)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    stats_.allocated += bytes;
    stats_.reserved = stats_.allocated;
    stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
    stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
    int64_t& tagged = stats_.by_tag[static_cast<size_t>(tag)];
    int64_t& peak = stats_.peak_by_tag[static_cast<size_t>(tag)];
    tagged += bytes;
    peak = std::max(peak, tagged);
  }

  const std::optional<int64_t> budget_bytes_;
  const bool poison_;
  mutable absl::Mutex mutex_;
  MemoryStats stats_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<void*, Block> blocks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Allocator> MakeHostAllocator(
    std::optional<int64_t> budget_bytes, bool poison) {
  return std::make_unique<HostAllocator>(budget_bytes, poison);
}

}  // namespace espalier::internal
