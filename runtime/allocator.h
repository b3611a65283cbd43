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

// Bytes. `allocated` is what callers hold, rounded up to the block sizes;
// `reserved` is what is taken from the system.
struct MemoryStats {
  int64_t allocated = 0;
  int64_t peak_allocated = 0;
  int64_t reserved = 0;
  int64_t peak_reserved = 0;
  int64_t largest_free = 0;
  int64_t num_allocations = 0;  // since the start
  std::array<int64_t, kNumMemoryTags> by_tag{};
  std::array<int64_t, kNumMemoryTags> peak_by_tag{};

  // reserved / allocated - 1 at the moment of the highest `reserved`.
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
  // At least 64-byte aligned; never null, also for 0 bytes. Fails with
  // RESOURCE_EXHAUSTED, the statistics table and advice.
  virtual void* Allocate(int64_t bytes, MemoryTag tag, Stream& stream) = 0;
  virtual void Free(void* data) = 0;
  // Work queued on `stream` uses the block, which belongs to another stream.
  virtual void RecordUse(const void* data, Stream& stream) = 0;
  // Gives cached blocks back to the system.
  virtual void ReleaseCached() = 0;
  virtual MemoryStats stats() const = 0;
  // Starts the peaks anew from what is held now.
  virtual void ResetPeak() = 0;
};

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_ALLOCATOR_H_
