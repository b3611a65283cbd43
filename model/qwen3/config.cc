#include "espalier/model/qwen3/config.h"

#include <utility>

#include "espalier/model/window_config.h"

namespace espalier::qwen3 {

absl::StatusOr<DecoderConfig> ParseConfig(const JsonObject& json) {
  DecoderConfig config;
  absl::Status status = ReadDecoderConfig(json, &config);
  if (status.ok()) status = json.GetOptional("attention_bias", &config.o_bias);
  if (!status.ok()) return status;
  config.qkv_bias = config.o_bias;
  config.head_norm = true;
  auto windows = ParseWindows(json, config.num_hidden_layers);
  if (!windows.ok()) return windows.status();
  config.windows = *std::move(windows);
  status = RefuseUnknownKeys(json, "qwen3");
  if (!status.ok()) return status;
  return config;
}

}  // namespace espalier::qwen3
