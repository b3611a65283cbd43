#ifndef ESPALIER_IO_INTERNAL_CONVERT_PLAN_H_
#define ESPALIER_IO_INTERNAL_CONVERT_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/checkpoint_writer.h"
#include "espalier/io/convert.h"
#include "espalier/io/internal/weight_view.h"
#include "espalier/io/json.h"

namespace espalier::internal {

// How one weight is written.
enum class ConvertStep : uint8_t {
  kCopy,    // the stored tensors, byte for byte
  kFloats,  // one tensor of a float dtype
  kFp8,     // codes, scales
  kInt4,    // codes, scales, shape
  kMxfp4,   // codes, scales
  kBlocks,  // the same under gpt-oss's names
};

struct ConvertTask {
  ConvertStep step = ConvertStep::kFloats;
  WeightView view;
};

// The tensors that a task writes: codes first, then scales.
absl::StatusOr<TensorGroup> TensorsOf(const WeightSource& source,
                                      const ConvertOptions& options,
                                      const ConvertTask& task);

struct ConvertPlan {
  std::vector<ConvertTask> tasks;
  JsonValue config;
  ConvertReport report;  // the counts
};

absl::StatusOr<ConvertPlan> PlanConversion(const WeightSource& source,
                                           const ConvertOptions& options);

// Whether `pattern`, in which "*" stands for any text, is the whole name.
bool MatchesGlob(absl::string_view pattern, absl::string_view name);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_CONVERT_PLAN_H_
