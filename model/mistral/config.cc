#include "espalier/model/mistral/config.h"

#include "absl/strings/str_cat.h"

namespace espalier::mistral {

namespace {

constexpr int64_t kReleasedWindow = 4096;

absl::Status ReadWindow(const JsonObject& json, DecoderConfig& config) {
  const JsonValue* value = json.GetValue("sliding_window");
  if (value != nullptr && value->is_null()) return absl::OkStatus();
  int64_t window = kReleasedWindow;
  absl::Status status = json.GetOptional("sliding_window", &window);
  if (!status.ok()) return status;
  if (window < 1) {
    return json.Error(
        "sliding_window",
        absl::StrCat("is ", window, ", expected 1 or more, or null"));
  }
  for (int64_t& each : config.windows) each = window;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DecoderConfig> ParseConfig(const JsonObject& json) {
  DecoderConfig config;
  absl::Status status = ReadDecoderConfig(json, &config);
  if (status.ok()) status = ReadWindow(json, config);
  if (status.ok()) status = RefuseUnknownKeys(json, "mistral");
  if (!status.ok()) return status;
  return config;
}

}  // namespace espalier::mistral
