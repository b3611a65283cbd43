#ifndef ESPALIER_MODEL_LLAMA_CONFIG_H_
#define ESPALIER_MODEL_LLAMA_CONFIG_H_

#include "absl/status/statusor.h"

#include "espalier/io/json_object.h"
#include "espalier/model/decoder_config.h"

namespace espalier::llama {

// config.json of model_type "llama" (arXiv:2302.13971, released configs of
// meta-llama): "attention_bias" puts biases on q, k, v and o, "mlp_bias" on the
// MLP. Every key is used, says nothing about the maths, or fails
// INVALID_ARGUMENT naming file and key.
absl::StatusOr<DecoderConfig> ParseConfig(const JsonObject& json);

}  // namespace espalier::llama

#endif  // ESPALIER_MODEL_LLAMA_CONFIG_H_
