#ifndef ESPALIER_MODEL_DECODER_CONFIG_H_
#define ESPALIER_MODEL_DECODER_CONFIG_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "espalier/io/json_object.h"
#include "espalier/ops/rope/rope.h"

namespace espalier {

// A dense decoder as a family's config.json describes it. Fields that are keys
// have their names.
struct DecoderConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;  // absent: num_attention_heads
  int64_t head_dim = 0;             // absent: hidden_size / num_attention_heads
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  RopeOptions rope;  // of head_dim; "rope_theta", "rope_scaling" and
                     // "rope_parameters" are read

  // What the family decides.
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool head_norm = false;        // q_norm and k_norm [head_dim]
  std::vector<int64_t> windows;  // of each layer, in tokens; 0: none
};

// Reads the keys that all dense families have, with windows of 0. Fails
// INVALID_ARGUMENT naming file and key: on a missing key, on sizes that no
// model has, on another activation than SiLU, on dropout.
absl::Status ReadDecoderConfig(const JsonObject& json, DecoderConfig* config);

// Once a family has read its own keys: those that say nothing about the maths
// are passed over, any other that was not read fails INVALID_ARGUMENT.
absl::Status RefuseUnknownKeys(const JsonObject& json,
                               absl::string_view family);

}  // namespace espalier

#endif  // ESPALIER_MODEL_DECODER_CONFIG_H_
