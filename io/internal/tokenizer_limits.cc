#include "espalier/io/internal/tokenizer_limits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace espalier::internal {

absl::Status StepLimits::AddStep(const JsonObject& json) {
  if (++num_steps_ <= kMaxSteps) return absl::OkStatus();
  return json.Error("type", absl::StrCat("is step ", num_steps_,
                                         ", expected at most ", kMaxSteps));
}

absl::Status StepLimits::AddReplace(const JsonObject& json,
                                    absl::string_view pattern,
                                    absl::string_view content) {
  const size_t longest = std::max(pattern.size(), content.size());
  if (longest > kMaxStringBytes) {
    return json.Error(
        "type", absl::StrCat("has a string of ", longest,
                             " bytes, expected at most ", kMaxStringBytes));
  }
  growth_ *= std::max(1.0, static_cast<double>(content.size()) /
                               static_cast<double>(pattern.size()));
  if (growth_ > static_cast<double>(kMaxGrowth)) {
    return json.Error("type",
                      absl::StrCat("can make text ", growth_,
                                   " times longer, with the steps before it, "
                                   "expected at most ",
                                   kMaxGrowth));
  }
  return AddStep(json);
}

}  // namespace espalier::internal
