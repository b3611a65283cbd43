#include "espalier/runtime/internal/memory_source.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

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

  int64_t RangeBytes(int64_t held_bytes) const override {
    const int64_t bytes = std::clamp(held_bytes, kFirstRangeBytes,
                                     std::max(limit_bytes_, kFirstRangeBytes));
    const int64_t share = AddressSpaceLimit() / 16;
    return std::clamp(share - share % kRangeAlignment, kRangeAlignment, bytes);
  }

  char* Reserve(int64_t bytes) override {
    if (bytes > std::max(limit_bytes_, kFirstRangeBytes)) {
      refusal_ = MachineHas();
      return nullptr;
    }
    // One alignment more than asked for; what sticks out goes back.
    const int64_t mapped = bytes + kRangeAlignment;
    void* const data = mmap(nullptr, static_cast<size_t>(mapped), PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
      refusal_ = SystemRefuses(bytes, "of address space");
      return nullptr;
    }
    refusal_.clear();
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
    if (bytes > limit_bytes_ - committed_bytes_) {
      refusal_ = MachineHas();
      return false;
    }
    if (mprotect(data, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE) !=
        0) {
      refusal_ = SystemRefuses(bytes, "of memory");
      return false;
    }
    refusal_.clear();
    committed_bytes_ += bytes;
    return true;
  }

  void Decommit(char* data, int64_t bytes) override {
    (void)madvise(data, static_cast<size_t>(bytes), MADV_DONTNEED);
    committed_bytes_ -= bytes;
  }

  std::string TakeRefusal() override { return std::exchange(refusal_, {}); }

 private:
  // Read each time: the host may change it.
  static int64_t AddressSpaceLimit() {
    struct rlimit limit = {};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
      return INT64_MAX;
    }
    return static_cast<int64_t>(
        std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(INT64_MAX)));
  }
  std::string MachineHas() const {
    return absl::StrCat("the machine has ", limit_bytes_ / kMiB,
                        " MiB of memory and swap space, ",
                        committed_bytes_ / kMiB, " MiB of them in use here");
  }
  static std::string SystemRefuses(int64_t bytes, absl::string_view what) {
    const int64_t limit = AddressSpaceLimit();
    return absl::StrCat(
        "the system refuses ", bytes / kMiB, " MiB ", what,
        limit == INT64_MAX
            ? "; the process has no address space limit"
            : absl::StrCat("; the process's address space limit (ulimit -v) "
                           "is ",
                           limit / kMiB, " MiB: raise it"));
  }

  static constexpr int64_t kMiB = int64_t{1} << 20;
  int64_t limit_bytes_ = INT64_MAX;
  int64_t committed_bytes_ = 0;
  std::string refusal_;
};

class NoMemory final : public MemorySource {
 public:
  int64_t RangeBytes(int64_t held_bytes) const override {
    return std::max(held_bytes, kFirstRangeBytes);
  }
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
