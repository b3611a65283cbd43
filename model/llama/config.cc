#include "espalier/model/llama/config.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "espalier/model/rope_config.h"

namespace espalier::llama {

namespace {

// Keys that say nothing about the maths of training.
constexpr absl::string_view kIgnored[] = {"architectures",
                                          "model_type",
                                          "torch_dtype",
                                          "dtype",
                                          "transformers_version",
                                          "use_cache",
                                          "bos_token_id",
                                          "eos_token_id",
                                          "pad_token_id",
                                          "initializer_range",
                                          "max_position_embeddings",
                                          "pretraining_tp",
                                          "_name_or_path",
                                          "attention_dropout"};

// Far above any model; modules are built before tensors are looked at, so no
// number of a file may make them without end.
constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeads = 65536;  // and their width

absl::Status Read(const JsonObject& json, Config& c) {
  struct Size {
    absl::string_view key;
    int64_t* field;
    int64_t max;
  };
  const Size sizes[] = {
      {"vocab_size", &c.vocab_size, kMaxSize},
      {"hidden_size", &c.hidden_size, kMaxSize},
      {"intermediate_size", &c.intermediate_size, kMaxSize},
      {"num_hidden_layers", &c.num_hidden_layers, kMaxLayers},
      {"num_attention_heads", &c.num_attention_heads, kMaxHeads}};
  for (const Size& size : sizes) {
    absl::Status status = json.Get(size.key, size.field);
    if (!status.ok()) return status;
    if (*size.field < 1 || *size.field > size.max) {
      return json.Error(size.key, absl::StrCat("is ", *size.field,
                                               ", expected 1 to ", size.max));
    }
  }
  c.num_key_value_heads = c.num_attention_heads;
  c.head_dim = c.hidden_size / c.num_attention_heads;
  std::string activation = "silu";
  for (const absl::Status& status :
       {json.GetOptional("num_key_value_heads", &c.num_key_value_heads),
        json.GetOptional("head_dim", &c.head_dim),
        json.GetOptional("rms_norm_eps", &c.rms_norm_eps),
        json.GetOptional("attention_bias", &c.attention_bias),
        json.GetOptional("mlp_bias", &c.mlp_bias),
        json.GetOptional("tie_word_embeddings", &c.tie_word_embeddings),
        json.GetOptional("hidden_act", &activation)}) {
    if (!status.ok()) return status;
  }
  if (activation != "silu") {
    return json.Error("hidden_act", absl::StrCat("is \"", activation,
                                                 "\", expected \"silu\""));
  }
  return absl::OkStatus();
}

absl::Status CheckHeads(const JsonObject& json, const Config& c) {
  if (c.num_key_value_heads < 1 ||
      c.num_attention_heads % c.num_key_value_heads != 0) {
    return json.Error("num_key_value_heads",
                      absl::StrCat("is ", c.num_key_value_heads,
                                   ", expected a divisor of "
                                   "num_attention_heads = ",
                                   c.num_attention_heads));
  }
  if (c.head_dim < 2 || c.head_dim % 2 != 0 || c.head_dim > kMaxHeads) {
    return json.Error(
        "head_dim",
        absl::StrCat("is ", c.head_dim, ", expected even, up to ", kMaxSize));
  }
  if (!(c.rms_norm_eps > 0)) {
    return json.Error("rms_norm_eps", absl::StrCat("is ", c.rms_norm_eps,
                                                   ", expected above 0"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Config> ParseConfig(const JsonObject& json) {
  Config config;
  absl::Status status = Read(json, config);
  if (status.ok()) status = CheckHeads(json, config);
  if (!status.ok()) return status;
  auto rope = ParseRope(json, config.head_dim);
  if (!rope.ok()) return rope.status();
  config.rope = *std::move(rope);
  for (const absl::string_view key : kIgnored) json.Ignore(key);
  const std::vector<std::string> unused = json.Unused();
  if (!unused.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(json.where(), ": keys that family llama does not know: ",
                     absl::StrJoin(unused, ", ")));
  }
  return config;
}

}  // namespace espalier::llama
