#include "espalier/model/decoder_config.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "espalier/model/rope_config.h"

namespace espalier {

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
                                          "_name_or_path",
                                          "_attn_implementation_autoset"};

// Far above any model; modules are built before tensors are looked at, so no
// number of a file may make them without end.
constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeads = 65536;  // and their width

absl::Status ReadSizes(const JsonObject& json, DecoderConfig& c) {
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
  return absl::OkStatus();
}

absl::Status ReadHeads(const JsonObject& json, DecoderConfig& c) {
  c.num_key_value_heads = c.num_attention_heads;
  c.head_dim = c.hidden_size / c.num_attention_heads;
  for (const absl::Status& status :
       {json.GetOptional("num_key_value_heads", &c.num_key_value_heads),
        json.GetOptional("head_dim", &c.head_dim)}) {
    if (!status.ok()) return status;
  }
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
        absl::StrCat("is ", c.head_dim, ", expected even, 2 to ", kMaxHeads));
  }
  return absl::OkStatus();
}

absl::Status ReadRest(const JsonObject& json, DecoderConfig& c) {
  std::string activation = "silu";
  double dropout = 0;
  for (const absl::Status& status :
       {json.GetOptional("rms_norm_eps", &c.rms_norm_eps),
        json.GetOptional("tie_word_embeddings", &c.tie_word_embeddings),
        json.GetOptional("hidden_act", &activation),
        json.GetOptional("attention_dropout", &dropout)}) {
    if (!status.ok()) return status;
  }
  if (!(c.rms_norm_eps > 0)) {
    return json.Error("rms_norm_eps", absl::StrCat("is ", c.rms_norm_eps,
                                                   ", expected above 0"));
  }
  if (activation != "silu") {
    return json.Error("hidden_act", absl::StrCat("is \"", activation,
                                                 "\", expected \"silu\""));
  }
  if (dropout != 0) {
    return json.Error("attention_dropout",
                      absl::StrCat("is ", dropout,
                                   ", expected 0: probabilities of attention "
                                   "are not dropped here"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadDecoderConfig(const JsonObject& json, DecoderConfig* config) {
  absl::Status status = ReadSizes(json, *config);
  if (status.ok()) status = ReadHeads(json, *config);
  if (status.ok()) status = ReadRest(json, *config);
  if (!status.ok()) return status;
  config->windows.assign(static_cast<size_t>(config->num_hidden_layers), 0);
  auto rope = ParseRope(json, config->head_dim);
  if (!rope.ok()) return rope.status();
  config->rope = *std::move(rope);
  return absl::OkStatus();
}

absl::Status RefuseUnknownKeys(const JsonObject& json,
                               absl::string_view family) {
  for (const absl::string_view key : kIgnored) json.Ignore(key);
  const std::vector<std::string> unused = json.Unused();
  if (unused.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(json.where(), ": keys that family ", family,
                   " does not know: ", absl::StrJoin(unused, ", ")));
}

}  // namespace espalier
