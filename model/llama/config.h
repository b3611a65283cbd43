#ifndef ESPALIER_MODEL_LLAMA_CONFIG_H_
#define ESPALIER_MODEL_LLAMA_CONFIG_H_

#include <cstdint>

#include "absl/status/statusor.h"

#include "espalier/io/json_object.h"
#include "espalier/ops/rope/rope.h"

namespace espalier::llama {

// config.json of model_type "llama".
struct Config {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;  // absent: num_attention_heads
  int64_t head_dim = 0;             // absent: hidden_size / num_attention_heads
  double rms_norm_eps = 1e-6;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool tie_word_embeddings = false;
  RopeOptions rope;  // of head_dim; "rope_theta", "rope_scaling" and
                     // "rope_parameters" are read
};

// Every key is used, on the list of keys without influence on the maths, or an
// error. Fails INVALID_ARGUMENT naming file and key.
absl::StatusOr<Config> ParseConfig(const JsonObject& json);

}  // namespace espalier::llama

#endif  // ESPALIER_MODEL_LLAMA_CONFIG_H_
