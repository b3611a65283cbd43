#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

#include "espalier/runtime/check.h"
#include "espalier/runtime/internal/devices.h"

namespace espalier::internal {

namespace {

class MetaStream final : public Stream {
 public:
  explicit MetaStream(absl::string_view name) : name_(name) {}
  absl::string_view name() const override { return name_; }
  void Enqueue(absl::string_view, absl::Span<const Access>,
               std::function<void()>) override {}
  Event Record() override { return {this, 0}; }
  void Wait(const Event&) override {}
  bool Passed(const Event&) const override { return true; }
  void Synchronize() override {}

 private:
  const absl::string_view name_;
};

// Hands out addresses that nothing is mapped at, and counts bytes.
class MetaAllocator final : public Allocator {
 public:
  void* Allocate(int64_t bytes, MemoryTag tag, Stream&) override {
    const int64_t rounded = std::max<int64_t>(64, (bytes + 63) / 64 * 64);
    absl::MutexLock lock(&mutex_);
    void* const data = reinterpret_cast<void*>(next_);
    next_ += static_cast<uintptr_t>(rounded);
    blocks_[data] = {rounded, tag};
    Count(rounded, tag);
    ++stats_.num_allocations;
    return data;
  }
  void Free(void* data) override {
    absl::MutexLock lock(&mutex_);
    const auto it = blocks_.find(data);
    if (it == blocks_.end()) return;
    Count(-it->second.first, it->second.second);
    blocks_.erase(it);
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

  mutable absl::Mutex mutex_;
  uintptr_t next_ ABSL_GUARDED_BY(mutex_) = uintptr_t{1} << 60;
  MemoryStats stats_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<void*, std::pair<int64_t, MemoryTag>> blocks_
      ABSL_GUARDED_BY(mutex_);
};

class MetaDevice final : public Device {
 public:
  explicit MetaDevice(Context& context) : Device(context) {}
  DeviceType type() const override { return kMeta; }
  DeviceType kernel_type() const override { return kCpu; }
  bool host_addressable() const override { return false; }
  Allocator& allocator() override { return allocator_; }
  Stream& compute_stream() override { return compute_stream_; }
  Stream& comm_stream() override { return comm_stream_; }
  void CopyToHost(void*, const void*, int64_t) override {
    Fail(absl::InternalError("meta tensors have no data to copy to the host"));
  }
  void CopyFromHost(void*, const void*, int64_t) override {}

 private:
  MetaAllocator allocator_;
  MetaStream compute_stream_{"meta.compute"};
  MetaStream comm_stream_{"meta.comm"};
};

}  // namespace

std::unique_ptr<Device> MakeMetaDevice(Context& context) {
  return std::make_unique<MetaDevice>(context);
}

}  // namespace espalier::internal
