#ifndef ESPALIER_IO_INTERNAL_TOKENIZER_LIMITS_H_
#define ESPALIER_IO_INTERNAL_TOKENIZER_LIMITS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "espalier/io/json_object.h"

namespace espalier::internal {

// What the steps of one part of a tokenizer.json (normalizer, pre_tokenizer,
// decoder) may ask for: a file of a few steps could otherwise make of a short
// text more than a machine holds. Released tokenizers stay far below.
class StepLimits {
 public:
  static constexpr size_t kMaxSteps = 16;
  static constexpr size_t kMaxStringBytes = 1024;
  static constexpr size_t kMaxGrowth = 16;

  // Counts one more step. INVALID_ARGUMENT, as json.Error says it, where there
  // are too many.
  absl::Status AddStep(const JsonObject& json);

  // Counts one that puts `content` in place of every `pattern`, which is not
  // empty; fails, besides, where one is too long, or where all steps together
  // could make a text kMaxGrowth times longer.
  absl::Status AddReplace(const JsonObject& json, absl::string_view pattern,
                          absl::string_view content);

 private:
  size_t num_steps_ = 0;
  double growth_ = 1;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_TOKENIZER_LIMITS_H_
