#include "espalier/train/data_config.h"

#include <cmath>

#include "absl/strings/str_cat.h"

#include "espalier/train/internal/data_choices.h"

namespace espalier {

namespace {

template <typename T, size_t kSize>
absl::Status CheckChoice(absl::string_view field,
                         const Choice<T> (&choices)[kSize],
                         const std::string& name) {
  std::string expected;
  for (const Choice<T>& choice : choices) {
    if (choice.name == name) return absl::OkStatus();
    absl::StrAppend(&expected, expected.empty() ? "\"" : ", \"", choice.name,
                    "\"");
  }
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is \"", name, "\", expected one of ", expected));
}

absl::Status CheckWeights(const DataConfig& config) {
  if (!config.weights.empty() && config.weights.size() != config.paths.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.weights has ", config.weights.size(),
                     " values, expected one for each of the ",
                     config.paths.size(), " data.paths, or none"));
  }
  for (const double weight : config.weights) {
    if (weight > 0 && std::isfinite(weight)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "data.weights holds ", weight, ", expected numbers above 0"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const DataConfig& config) {
  if (config.paths.empty()) {
    return absl::InvalidArgumentError("data.paths is empty");
  }
  for (const std::string& path : config.paths) {
    if (path.empty()) {
      return absl::InvalidArgumentError("data.paths holds an empty path");
    }
  }
  absl::Status status = CheckWeights(config);
  if (!status.ok()) return status;
  if (config.prompt_field.empty() != config.completion_field.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.prompt_field is \"", config.prompt_field,
                     "\" and data.completion_field is \"",
                     config.completion_field, "\", expected both or none"));
  }
  status = CheckChoice("data.text_boundary", kBoundaries, config.text_boundary);
  if (status.ok()) status = CheckChoice("data.loss", kLosses, config.loss);
  if (status.ok()) {
    status = CheckChoice("data.chat_layout", kLayouts, config.chat_layout);
  }
  if (status.ok()) {
    status = CheckChoice("data.thinking_effort", kThinkingEfforts,
                         config.thinking_effort);
  }
  if (status.ok()) {
    status =
        CheckChoice("data.long_samples", kLongSamples, config.long_samples);
  }
  if (!status.ok()) return status;
  if ((config.text_boundary == "separator") == config.text_separator.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.text_separator is \"", config.text_separator,
        "\" with data.text_boundary \"", config.text_boundary,
        "\", expected a line for \"separator\" and none otherwise"));
  }
  if (config.max_sample_tokens < 2) {
    return absl::InvalidArgumentError(absl::StrCat("data.max_sample_tokens is ",
                                                   config.max_sample_tokens,
                                                   ", expected 2 or more"));
  }
  return absl::OkStatus();
}

}  // namespace espalier
