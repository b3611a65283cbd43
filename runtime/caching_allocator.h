#ifndef ESPALIER_RUNTIME_CACHING_ALLOCATOR_H_
#define ESPALIER_RUNTIME_CACHING_ALLOCATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "espalier/runtime/allocator.h"
#include "espalier/runtime/internal/memory_source.h"

namespace espalier {

class Stream;

struct CachingAllocatorOptions {
  std::string device;  // for messages
  // Neither `allocated` nor `reserved` ever exceeds it. (Below 4 MiB, where
  // chunks would be too coarse, `reserved` may reach 256 KiB.)
  std::optional<int64_t> budget_bytes = std::nullopt;
  bool poison = false;  // NaN fill at allocation and at free, in stream order
  // How it is queued, by any thread, without failing; none: as work of the
  // stream. (data, bytes, value of each byte)
  std::function<void(Stream&, void*, int64_t, int)> fill = nullptr;
  // Whether the host reads and writes the memory only between Allocate and
  // Free: then AddressSanitizer, in its builds, watches over it.
  bool host_memory = false;
};

// Allocator of every device. Blocks up to 16 KiB lie in slabs by size class;
// larger ones are cut, best fit, from growing arenas (docs/adr/0002). Each
// stream has its own arenas, so a freed block serves its own stream at once;
// one that other streams used (RecordUse) comes back after their work.
//
// `allocated` is the sum of the block sizes (internal/block_size.h), a pure
// function of the calls; on a meta device it is what any other device counts.
//
// The streams it is called with must live as long as its use, and must allow
// Record() and Passed() from any thread. Thread-safe.
std::unique_ptr<Allocator> MakeCachingAllocator(
    std::unique_ptr<internal::MemorySource> source,
    CachingAllocatorOptions options);

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_CACHING_ALLOCATOR_H_
