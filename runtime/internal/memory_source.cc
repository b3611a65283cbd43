#include "espalier/runtime/internal/memory_source.h"

#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <algorithm>

#include "espalier/runtime/internal/asan.h"

namespace espalier::internal {

namespace {

class HostMemory final : public MemorySource {
 public:
  HostMemory() {
    struct sysinfo info = {};
    if (sysinfo(&info) == 0) {
      limit_bytes_ = static_cast<int64_t>(info.totalram + info.totalswap) *
                     static_cast<int64_t>(info.mem_unit);
    }
  }

  int64_t range_bytes() const override { return int64_t{1} << 40; }

  char* Reserve(int64_t bytes) override {
    if (bytes > std::max(limit_bytes_, range_bytes())) return nullptr;
    // One alignment more than asked for; what sticks out goes back.
    const int64_t mapped = bytes + kRangeAlignment;
    void* const data = mmap(nullptr, static_cast<size_t>(mapped), PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    char* const begin = static_cast<char*>(data);
    const int64_t misaligned =
        static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin) %
                             static_cast<uintptr_t>(kRangeAlignment));
    const int64_t head = misaligned == 0 ? 0 : kRangeAlignment - misaligned;
    if (head > 0) munmap(begin, static_cast<size_t>(head));
    munmap(begin + head + bytes, static_cast<size_t>(kRangeAlignment - head));
    // Advice: where huge pages are off, small ones serve.
    (void)madvise(begin + head, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    return begin + head;
  }

  void Unreserve(char* data, int64_t bytes, int64_t used_bytes) override {
    AllowAccess(data, used_bytes);  // the addresses may serve others next
    munmap(data, static_cast<size_t>(bytes));
  }

  bool Commit(char* data, int64_t bytes) override {
    if (bytes > limit_bytes_ - committed_bytes_) return false;
    if (mprotect(data, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE) !=
        0) {
      return false;
    }
    committed_bytes_ += bytes;
    return true;
  }

  void Decommit(char* data, int64_t bytes) override {
    (void)madvise(data, static_cast<size_t>(bytes), MADV_DONTNEED);
    committed_bytes_ -= bytes;
  }

 private:
  int64_t limit_bytes_ = INT64_MAX;
  int64_t committed_bytes_ = 0;
};

class NoMemory final : public MemorySource {
 public:
  int64_t range_bytes() const override { return int64_t{1} << 50; }
  char* Reserve(int64_t bytes) override {
    if (bytes > (int64_t{1} << 61) - next_) return nullptr;
    // An address that nothing is ever read through.
    // NOLINTNEXTLINE(performance-no-int-to-ptr): has no object to start from
    char* const data = reinterpret_cast<char*>(next_);
    next_ += bytes;
    return data;
  }
  void Unreserve(char*, int64_t, int64_t) override {}
  bool Commit(char*, int64_t) override { return true; }
  void Decommit(char*, int64_t) override {}

 private:
  int64_t next_ = int64_t{1} << 60;
};

}  // namespace

std::unique_ptr<MemorySource> MakeHostMemory() {
  return std::make_unique<HostMemory>();
}

std::unique_ptr<MemorySource> MakeNoMemory() {
  return std::make_unique<NoMemory>();
}

}  // namespace espalier::internal
