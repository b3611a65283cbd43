#ifndef ESPALIER_MODEL_MISTRAL_CONFIG_H_
#define ESPALIER_MODEL_MISTRAL_CONFIG_H_

#include "absl/status/statusor.h"

#include "espalier/io/json_object.h"
#include "espalier/model/decoder_config.h"

namespace espalier::mistral {

// config.json of model_type "mistral" (arXiv:2310.06825): no biases, every
// layer has the window "sliding_window"; null is none, and an absent key 4096,
// as transformers has it. Every key is used, says nothing about the maths, or
// fails INVALID_ARGUMENT naming file and key.
absl::StatusOr<DecoderConfig> ParseConfig(const JsonObject& json);

}  // namespace espalier::mistral

#endif  // ESPALIER_MODEL_MISTRAL_CONFIG_H_
