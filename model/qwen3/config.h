#ifndef ESPALIER_MODEL_QWEN3_CONFIG_H_
#define ESPALIER_MODEL_QWEN3_CONFIG_H_

#include "absl/status/statusor.h"

#include "espalier/io/json_object.h"
#include "espalier/model/decoder_config.h"

namespace espalier::qwen3 {

// config.json of model_type "qwen3" (arXiv:2505.09388): q_norm and k_norm on
// each head, "attention_bias" puts biases on q, k, v and o, windows as
// ParseWindows says. Every key is used, says nothing about the maths, or fails
// INVALID_ARGUMENT naming file and key.
absl::StatusOr<DecoderConfig> ParseConfig(const JsonObject& json);

}  // namespace espalier::qwen3

#endif  // ESPALIER_MODEL_QWEN3_CONFIG_H_
