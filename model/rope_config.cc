#include "espalier/model/rope_config.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace espalier {

namespace {

absl::Status ReadType(const JsonObject& scaling, RopeOptions& options) {
  std::string type = "default";
  absl::Status status = scaling.GetOptional("type", &type);
  if (status.ok()) status = scaling.GetOptional("rope_type", &type);
  if (!status.ok()) return status;
  if (type == "default") {
    options.scaling = RopeScaling::kNone;
  } else if (type == "linear") {
    options.scaling = RopeScaling::kLinear;
  } else if (type == "llama3") {
    options.scaling = RopeScaling::kLlama3;
  } else if (type == "yarn") {
    options.scaling = RopeScaling::kYarn;
  } else {
    return scaling.Error(
        "rope_type",
        absl::StrCat("is \"", type,
                     "\", expected default, linear, llama3 or yarn"));
  }
  return absl::OkStatus();
}

absl::Status ReadNumbers(const JsonObject& scaling, RopeOptions& options) {
  const std::pair<absl::string_view, double*> numbers[] = {
      {"rope_theta", &options.theta},
      {"factor", &options.factor},
      {"original_max_position_embeddings",
       &options.original_max_position_embeddings},
      {"low_freq_factor", &options.low_freq_factor},
      {"high_freq_factor", &options.high_freq_factor},
      {"beta_fast", &options.beta_fast},
      {"beta_slow", &options.beta_slow},
      {"mscale", &options.mscale},
      {"mscale_all_dim", &options.mscale_all_dim},
      {"attention_factor", &options.attention_factor}};
  for (const auto& [key, field] : numbers) {
    absl::Status status = scaling.GetOptional(key, field);
    if (!status.ok()) return status;
  }
  return scaling.GetOptional("truncate", &options.truncate);
}

absl::Status CheckScaling(const JsonObject& json, const RopeOptions& options) {
  if (!(options.theta > 1)) {
    return json.Error("rope_theta",
                      absl::StrCat("is ", options.theta, ", expected above 1"));
  }
  if (options.scaling != RopeScaling::kNone && !(options.factor >= 1)) {
    return json.Error(
        "rope_scaling",
        absl::StrCat("has factor ", options.factor, ", expected 1 or more"));
  }
  const bool needs_original = options.scaling == RopeScaling::kLlama3 ||
                              options.scaling == RopeScaling::kYarn;
  if (needs_original && !(options.original_max_position_embeddings > 0)) {
    return json.Error("rope_scaling",
                      "lacks original_max_position_embeddings above 0");
  }
  if (options.scaling == RopeScaling::kLlama3 &&
      !(options.low_freq_factor > 0 &&
        options.low_freq_factor < options.high_freq_factor)) {
    return json.Error(
        "rope_scaling",
        absl::StrCat("has low_freq_factor ", options.low_freq_factor,
                     ", expected above 0 and below "
                     "high_freq_factor ",
                     options.high_freq_factor));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RopeOptions> ParseRope(const JsonObject& json,
                                      int64_t rotary_dim) {
  RopeOptions options;
  options.rotary_dim = rotary_dim;
  absl::Status status = json.GetOptional("rope_theta", &options.theta);
  if (!status.ok()) return status;
  for (const absl::string_view key : {"rope_scaling", "rope_parameters"}) {
    if (!json.Has(key)) {
      json.Ignore(key);
      continue;
    }
    JsonObject scaling;
    status = json.Get(key, &scaling);
    if (status.ok()) status = ReadType(scaling, options);
    if (status.ok()) status = ReadNumbers(scaling, options);
    if (!status.ok()) return status;
  }
  // Yarn configs may leave the original length to the model's own.
  if (options.scaling == RopeScaling::kYarn &&
      options.original_max_position_embeddings == 0) {
    status = json.GetOptional("max_position_embeddings",
                              &options.original_max_position_embeddings);
    if (!status.ok()) return status;
  }
  status = CheckScaling(json, options);
  if (!status.ok()) return status;
  return options;
}

}  // namespace espalier
