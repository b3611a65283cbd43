#include "espalier/model/llama/config.h"

namespace espalier::llama {

absl::StatusOr<DecoderConfig> ParseConfig(const JsonObject& json) {
  DecoderConfig config;
  absl::Status status = ReadDecoderConfig(json, &config);
  if (status.ok()) status = json.GetOptional("attention_bias", &config.o_bias);
  if (status.ok()) status = json.GetOptional("mlp_bias", &config.mlp_bias);
  if (!status.ok()) return status;
  config.qkv_bias = config.o_bias;
  // In how many pieces products were once computed.
  json.Ignore("pretraining_tp");
  status = RefuseUnknownKeys(json, "llama");
  if (!status.ok()) return status;
  return config;
}

}  // namespace espalier::llama
