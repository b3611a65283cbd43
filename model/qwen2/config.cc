#include "espalier/model/qwen2/config.h"

#include <utility>

#include "espalier/model/window_config.h"

namespace espalier::qwen2 {

absl::StatusOr<DecoderConfig> ParseConfig(const JsonObject& json) {
  DecoderConfig config;
  bool mrope = false;
  absl::Status status = ReadDecoderConfig(json, &config);
  if (status.ok()) status = json.GetOptional("use_mrope", &mrope);
  if (!status.ok()) return status;
  if (mrope) {
    return json.Error("use_mrope",
                      "is true, expected false: positions of several axes are "
                      "not of this family");
  }
  config.qkv_bias = true;
  auto windows = ParseWindows(json, config.num_hidden_layers);
  if (!windows.ok()) return windows.status();
  config.windows = *std::move(windows);
  status = RefuseUnknownKeys(json, "qwen2");
  if (!status.ok()) return status;
  return config;
}

}  // namespace espalier::qwen2
