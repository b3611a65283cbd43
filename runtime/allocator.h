#ifndef ESPALIER_RUNTIME_ALLOCATOR_H_
#define ESPALIER_RUNTIME_ALLOCATOR_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace espalier {

class Stream;

enum class MemoryTag : uint8_t {
  kWeights,
  kActivations,
  kGradients,
  kOptimizer,
  kWorkspace,
  kComms,
};
inline constexpr int kNumMemoryTags = 6;

absl::string_view ToString(MemoryTag tag);

// Bytes. `requested` is what callers hold, `allocated` the same with every
// block rounded up to its block size, `reserved` what is taken from the system
// for it. All exact; peaks are those of the figure itself, not of samples.
struct MemoryStats {
  int64_t requested = 0;
  int64_t allocated = 0;
  int64_t peak_allocated = 0;
  int64_t reserved = 0;
  int64_t peak_reserved = 0;
  int64_t largest_free = 0;     // one block, in reserved memory
  int64_t num_allocations = 0;  // since the start
  std::array<int64_t, kNumMemoryTags> by_tag{};  // of `allocated`
  std::array<int64_t, kNumMemoryTags> peak_by_tag{};

  // peak_reserved / peak_allocated - 1.
  double fragmentation_at_peak = 0;
};

// A table of the figures, for messages.
std::string ToString(const MemoryStats& stats);

// Memory of one device, in stream order: a block handed out for a stream may
// be used by work queued on that stream from then on; after Free, work that is
// already queued there (and on streams named by RecordUse) still finds the
// block untouched. Thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;
  // At least 64-byte aligned; never null, also for 0 bytes. When memory is
  // short it waits for the streams and gives cached blocks back first; then
  // fails with RESOURCE_EXHAUSTED, the statistics table and advice.
  virtual void* Allocate(int64_t bytes, MemoryTag tag, Stream& stream) = 0;
  // `data` is what Allocate gave; anything else is left alone. Never throws.
  virtual void Free(void* data) = 0;
  // Work queued on `stream` before Free uses the block, which belongs to
  // another stream: after Free it is reused only once that work is done.
  virtual void RecordUse(const void* data, Stream& stream) = 0;
  // Gives cached memory back to the system, where its stream has no work
  // queued that may still use it.
  virtual void ReleaseCached() = 0;
  virtual MemoryStats stats() const = 0;
  // Starts the peaks anew from what is held now.
  virtual void ResetPeak() = 0;
};

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_ALLOCATOR_H_
