#include "espalier/runtime/allocator.h"

#include "absl/strings/str_format.h"

namespace espalier {

absl::string_view ToString(MemoryTag tag) {
  switch (tag) {
    case MemoryTag::kWeights:
      return "weights";
    case MemoryTag::kActivations:
      return "activations";
    case MemoryTag::kGradients:
      return "gradients";
    case MemoryTag::kOptimizer:
      return "optimizer";
    case MemoryTag::kWorkspace:
      return "workspace";
    case MemoryTag::kComms:
      return "comms";
  }
  return "unknown";
}

std::string ToString(const MemoryStats& stats) {
  constexpr double kMiB = 1024.0 * 1024.0;
  std::string table = absl::StrFormat(
      "allocated %.1f MiB (peak %.1f), reserved %.1f MiB (peak %.1f), largest "
      "free %.1f MiB, fragmentation at peak %.1f %%",
      stats.allocated / kMiB, stats.peak_allocated / kMiB,
      stats.reserved / kMiB, stats.peak_reserved / kMiB,
      stats.largest_free / kMiB, stats.fragmentation_at_peak * 100);
  for (int tag = 0; tag < kNumMemoryTags; ++tag) {
    absl::StrAppendFormat(&table, "\n  %-12s %10.1f MiB  peak %10.1f MiB",
                          ToString(static_cast<MemoryTag>(tag)),
                          stats.by_tag[static_cast<size_t>(tag)] / kMiB,
                          stats.peak_by_tag[static_cast<size_t>(tag)] / kMiB);
  }
  return table;
}

}  // namespace espalier
