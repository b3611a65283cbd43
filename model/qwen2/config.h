#ifndef ESPALIER_MODEL_QWEN2_CONFIG_H_
#define ESPALIER_MODEL_QWEN2_CONFIG_H_

#include "absl/status/statusor.h"

#include "espalier/io/json_object.h"
#include "espalier/model/decoder_config.h"

namespace espalier::qwen2 {

// config.json of model_type "qwen2" (arXiv:2407.10671; Qwen1.5, Qwen2, Qwen2.5,
// QwQ): biases on q, k and v alone, windows as ParseWindows says. Every key is
// used, says nothing about the maths, or fails INVALID_ARGUMENT naming file and
// key.
absl::StatusOr<DecoderConfig> ParseConfig(const JsonObject& json);

}  // namespace espalier::qwen2

#endif  // ESPALIER_MODEL_QWEN2_CONFIG_H_
