#ifndef ESPALIER_IO_INTERNAL_CONVERT_PLAN_H_
#define ESPALIER_IO_INTERNAL_CONVERT_PLAN_H_

#include <cstddef>
#include <string>
#include <utility>
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

// What becomes of every weight of a source. All of it is looked at by Make; a
// task is worked out again when it is asked for, so that a plan for half a
// million tensors is small.
class ConvertPlan {
 public:
  // `source` and `options` outlive the plan.
  static absl::StatusOr<ConvertPlan> Make(const WeightSource& source,
                                          const ConvertOptions& options);

  size_t size() const { return views_.size(); }
  // The same at every call.
  absl::StatusOr<ConvertTask> Task(size_t index) const;
  absl::StatusOr<TensorGroup> Tensors(size_t index) const;

  const JsonValue& config() const { return config_; }
  const ConvertReport& report() const { return report_; }  // the counts

 private:
  ConvertPlan(const WeightSource& source, const ConvertOptions& options,
              WeightViews views)
      : source_(&source), options_(&options), views_(std::move(views)) {}

  const WeightSource* source_;
  const ConvertOptions* options_;
  WeightViews views_;
  std::vector<std::string> only_;
  JsonValue config_;
  ConvertReport report_;
};

// Whether `pattern`, in which "*" stands for any text, is the whole name.
bool MatchesGlob(absl::string_view pattern, absl::string_view name);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_CONVERT_PLAN_H_
