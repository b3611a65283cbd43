#include "espalier/io/gguf_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "espalier/io/internal/text.h"

namespace espalier {

namespace {

constexpr double kPi = 3.14159265358979323846;

struct Family {
  absl::string_view arch;
  absl::string_view model_type;
  absl::string_view architecture;
};

constexpr Family kFamilies[] = {
    {"llama", "llama", "LlamaForCausalLM"},
    {"qwen2", "qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "qwen3", "Qwen3ForCausalLM"},
    {"qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM"},
    {"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM"},
};

struct Part {
  absl::string_view gguf;
  absl::string_view name;
};

constexpr Part kParts[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"ffn_gate_inp.weight", "mlp.gate.weight"},
    {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight"},
    {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight"},
    {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight"},
    {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight"},
};

struct ExpertPart {
  absl::string_view gguf;
  absl::string_view name;
  absl::string_view mixtral;
};

constexpr ExpertPart kExpertParts[] = {
    {"ffn_gate_exps.weight", "gate_proj", "w1"},
    {"ffn_up_exps.weight", "up_proj", "w3"},
    {"ffn_down_exps.weight", "down_proj", "w2"},
};

// A sharp bound on what config.json may hold.
constexpr int64_t kMaxSize = int64_t{1} << 31;

// A number that the file holds as f32, as it was before: 1e-5.
double ShortDouble(double value) {
  double result = value;
  const bool read =
      absl::SimpleAtod(absl::StrCat(static_cast<float>(value)), &result);
  return read ? result : value;
}

}  // namespace

absl::Status GgufCheckpoint::Need(absl::string_view key, int64_t* value) const {
  const std::string name = absl::StrCat(arch_, ".", key);
  const int64_t* found = file_.FindInt(name);
  if (found == nullptr || *found < 1 || *found > kMaxSize) {
    return absl::InvalidArgumentError(absl::StrCat(
        file_.path(), ": ", name, " is ",
        found == nullptr ? "missing or no integer" : absl::StrCat(*found),
        ", expected 1 to ", kMaxSize));
  }
  *value = *found;
  return absl::OkStatus();
}

// Llama 3.1 and later: no key says so, only the factors that the frequencies
// are divided by.
absl::Status GgufCheckpoint::ReadRopeFactors(JsonValue& config) {
  const GgufTensor* tensor = file_.Find("rope_freqs.weight");
  if (tensor == nullptr) return absl::OkStatus();
  if (tensor->shape != std::vector<int64_t>{head_dim_ / 2}) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_.path(),
                     ": rope_freqs.weight has another shape "
                     "than half a head"));
  }
  std::vector<float> stored(static_cast<size_t>(head_dim_ / 2));
  absl::Status status = file_.DecodeRows(*tensor, 0, 1, absl::MakeSpan(stored));
  if (!status.ok()) return status;
  const double theta = *config.Find("rope_theta")->AsDouble();
  for (const double factor : {8.0, 32.0}) {
    constexpr double kLow = 1;
    constexpr double kHigh = 4;
    constexpr double kOriginal = 8192;
    bool same = true;
    for (size_t i = 0; i < stored.size(); ++i) {
      const double wave = 2 * kPi *
                          std::pow(theta, 2 * static_cast<double>(i) /
                                              static_cast<double>(head_dim_));
      double expected = 1;
      if (wave > kOriginal / kLow) {
        expected = factor;
      } else if (wave >= kOriginal / kHigh) {
        const double smooth = (kOriginal / wave - kLow) / (kHigh - kLow);
        expected = 1 / ((1 - smooth) / factor + smooth);
      }
      same = same && std::fabs(stored[i] - expected) <= 1e-4 * expected;
    }
    if (!same) continue;
    config.Set("rope_scaling",
               JsonValue::Object{{"factor", factor},
                                 {"high_freq_factor", kHigh},
                                 {"low_freq_factor", kLow},
                                 {"original_max_position_embeddings", 8192},
                                 {"rope_type", "llama3"}});
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      absl::StrCat(file_.path(),
                   ": rope_freqs.weight holds factors that are not those of "
                   "Llama 3.1 or 3.2"));
}

absl::Status GgufCheckpoint::ReadRope(JsonValue& config) {
  double storage = 0;
  const double* theta =
      file_.FindNumber(absl::StrCat(arch_, ".rope.freq_base"), &storage);
  config.Set("rope_theta", theta != nullptr ? *theta : 10000.0);
  const std::string* type =
      file_.FindString(absl::StrCat(arch_, ".rope.scaling.type"));
  if (type == nullptr || *type == "none") return ReadRopeFactors(config);
  double factor_storage = 0;
  const double* factor = file_.FindNumber(
      absl::StrCat(arch_, ".rope.scaling.factor"), &factor_storage);
  if ((*type != "linear" && *type != "yarn") || factor == nullptr) {
    return absl::UnimplementedError(absl::StrCat(
        file_.path(), ": rope.scaling.type ", internal::Quote(*type),
        ", expected none, or linear or yarn with a factor"));
  }
  JsonValue::Object scaling = {{"factor", *factor}, {"rope_type", *type}};
  if (const int64_t* original = file_.FindInt(
          absl::StrCat(arch_, ".rope.scaling.original_context_length"));
      original != nullptr) {
    scaling.push_back({"original_max_position_embeddings", *original});
  }
  config.Set("rope_scaling", std::move(scaling));
  return absl::OkStatus();
}

absl::Status GgufCheckpoint::ReadConfig() {
  const std::string* arch = file_.FindString("general.architecture");
  const auto family = std::find_if(
      std::begin(kFamilies), std::end(kFamilies),
      [&](const Family& f) { return arch != nullptr && f.arch == *arch; });
  if (family == std::end(kFamilies)) {
    return absl::UnimplementedError(
        absl::StrCat(file_.path(), ": general.architecture ",
                     arch == nullptr ? "is missing" : internal::Quote(*arch),
                     ", expected llama, qwen2, qwen3, qwen2moe or qwen3moe"));
  }
  arch_ = *arch;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t context = 0;
  double epsilon_storage = 0;
  if (auto s = Need("embedding_length", &hidden); !s.ok()) return s;
  if (auto s = Need("block_count", &num_layers_); !s.ok()) return s;
  if (auto s = Need("context_length", &context); !s.ok()) return s;
  if (auto s = Need("feed_forward_length", &intermediate); !s.ok()) return s;
  if (auto s = Need("attention.head_count", &num_heads_); !s.ok()) return s;
  num_key_value_heads_ = num_heads_;
  if (file_.metadata().contains(
          absl::StrCat(arch_, ".attention.head_count_kv"))) {
    auto s = Need("attention.head_count_kv", &num_key_value_heads_);
    if (!s.ok()) return s;
  }
  head_dim_ = hidden / num_heads_;
  if (file_.metadata().contains(absl::StrCat(arch_, ".attention.key_length"))) {
    if (auto s = Need("attention.key_length", &head_dim_); !s.ok()) return s;
  }
  const double* epsilon =
      file_.FindNumber(absl::StrCat(arch_, ".attention.layer_norm_rms_epsilon"),
                       &epsilon_storage);
  const GgufTensor* embedding = file_.Find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2 ||
      embedding->shape[1] != hidden || epsilon == nullptr ||
      num_heads_ % num_key_value_heads_ != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_.path(),
                     ": token_embd.weight, embedding_length, head_count, "
                     "head_count_kv or layer_norm_rms_epsilon is missing or "
                     "does not fit the others"));
  }
  if (file_.metadata().contains(absl::StrCat(arch_, ".expert_count"))) {
    const int64_t* count = file_.FindInt(absl::StrCat(arch_, ".expert_count"));
    if (count == nullptr || *count != 0) {
      if (auto s = Need("expert_count", &num_experts_); !s.ok()) return s;
    }
  }
  mixtral_ = arch_ == "llama" && num_experts_ > 0;
  JsonValue config = JsonValue::Object{
      {"architectures",
       JsonValue::Array{mixtral_ ? "MixtralForCausalLM"
                                 : std::string(family->architecture)}},
      {"hidden_act", "silu"},
      {"hidden_size", hidden},
      {"intermediate_size", intermediate},
      {"max_position_embeddings", context},
      {"model_type", mixtral_ ? "mixtral" : std::string(family->model_type)},
      {"num_attention_heads", num_heads_},
      {"num_hidden_layers", num_layers_},
      {"num_key_value_heads", num_key_value_heads_},
      {"rms_norm_eps", ShortDouble(*epsilon)},
      {"tie_word_embeddings", file_.Find("output.weight") == nullptr},
      {"vocab_size", embedding->shape[0]}};
  if (head_dim_ * num_heads_ != hidden || arch_ == "qwen3" ||
      arch_ == "qwen3moe") {
    config.Set("head_dim", head_dim_);
  }
  if (arch_ == "llama" && !mixtral_) {
    config.Set("attention_bias", file_.Find("blk.0.attn_q.bias") != nullptr);
    config.Set("mlp_bias", false);
  }
  if (num_experts_ > 0) {
    int64_t used = 0;
    if (auto s = Need("expert_used_count", &used); !s.ok()) return s;
    config.Set(mixtral_ ? "num_local_experts" : "num_experts", num_experts_);
    config.Set("num_experts_per_tok", used);
    if (!mixtral_) {
      int64_t width = 0;
      if (auto s = Need("expert_feed_forward_length", &width); !s.ok())
        return s;
      config.Set("moe_intermediate_size", width);
      config.Set("norm_topk_prob", arch_ == "qwen3moe");
      config.Set("decoder_sparse_step", 1);
      config.Set("mlp_only_layers", JsonValue::Array{});
    }
    if (arch_ == "qwen2moe") {
      int64_t width = 0;
      auto s = Need("expert_shared_feed_forward_length", &width);
      if (!s.ok()) return s;
      config.Set("shared_expert_intermediate_size", width);
    }
  }
  for (const char* token : {"bos", "eos"}) {
    const int64_t* id =
        file_.FindInt(absl::StrCat("tokenizer.ggml.", token, "_token_id"));
    if (id != nullptr) config.Set(absl::StrCat(token, "_token_id"), *id);
  }
  if (auto s = ReadRope(config); !s.ok()) return s;
  // NaN and infinity are numbers for the file, not for a config.json.
  if (const auto text = WriteJson(config); !text.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        file_.path(), ": as config.json: ", text.status().message()));
  }
  config_ = std::move(config);
  return absl::OkStatus();
}

absl::Status GgufCheckpoint::NameLayerTensor(uint32_t index,
                                             absl::string_view layer,
                                             absl::string_view part) {
  const GgufTensor& tensor = file_.tensors()[index];
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  for (const ExpertPart& expert : kExpertParts) {
    if (expert.gguf != part) continue;
    if (tensor.shape.size() != 3 || tensor.shape[0] != num_experts_) {
      return absl::InvalidArgumentError(absl::StrCat(
          file_.path(), ": tensor ", internal::Quote(tensor.name),
          " does not have one slice for each of ", num_experts_, " experts"));
    }
    for (int64_t e = 0; e < num_experts_; ++e) {
      weights_.push_back(
          {mixtral_ ? absl::StrCat(prefix, "block_sparse_moe.experts.", e, ".",
                                   expert.mixtral, ".weight")
                    : absl::StrCat(prefix, "mlp.experts.", e, ".", expert.name,
                                   ".weight"),
           {tensor.shape[1], tensor.shape[2]},
           index,
           e * tensor.shape[1],
           0});
    }
    return absl::OkStatus();
  }
  for (const Part& known : kParts) {
    if (known.gguf != part) continue;
    GgufWeight weight = {absl::StrCat(prefix, known.name), tensor.shape, index,
                         0, 0};
    if (mixtral_ && part == "ffn_gate_inp.weight") {
      weight.name = absl::StrCat(prefix, "block_sparse_moe.gate.weight");
    }
    // A router of one row was written without it.
    if (part == "ffn_gate_inp_shexp.weight" && weight.shape.size() == 1) {
      weight.shape.insert(weight.shape.begin(), 1);
    }
    if (arch_ == "llama" && absl::StartsWith(part, "attn_q.")) {
      weight.rotary_heads = num_heads_;
    } else if (arch_ == "llama" && absl::StartsWith(part, "attn_k.")) {
      weight.rotary_heads = num_key_value_heads_;
    }
    if (weight.rotary_heads > 0 &&
        (weight.shape[0] != weight.rotary_heads * head_dim_ ||
         head_dim_ % 2 != 0 || weight.shape.size() > 2)) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_.path(), ": tensor ", internal::Quote(tensor.name),
                       " has ", weight.shape[0], " rows for ",
                       weight.rotary_heads, " heads of ", head_dim_));
    }
    weights_.push_back(std::move(weight));
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      absl::StrCat(file_.path(), ": tensor ", internal::Quote(tensor.name),
                   " is not known in the architecture ", arch_));
}

absl::Status GgufCheckpoint::NameTensors() {
  for (uint32_t i = 0; i < file_.tensors().size(); ++i) {
    const GgufTensor& tensor = file_.tensors()[i];
    if (tensor.name == "rope_freqs.weight") continue;  // in the config
    if (tensor.name == "token_embd.weight") {
      weights_.push_back({"model.embed_tokens.weight", tensor.shape, i, 0, 0});
    } else if (tensor.name == "output_norm.weight") {
      weights_.push_back({"model.norm.weight", tensor.shape, i, 0, 0});
    } else if (tensor.name == "output.weight") {
      weights_.push_back({"lm_head.weight", tensor.shape, i, 0, 0});
    } else {
      const std::vector<std::string> words =
          absl::StrSplit(tensor.name, absl::MaxSplits('.', 2));
      int64_t layer = 0;
      if (words.size() != 3 || words[0] != "blk" ||
          !absl::SimpleAtoi(words[1], &layer) || layer < 0 ||
          layer >= num_layers_ || absl::StrCat(layer) != words[1]) {
        return absl::UnimplementedError(absl::StrCat(
            file_.path(), ": tensor ", internal::Quote(tensor.name),
            " is not known in the architecture ", arch_, " with ", num_layers_,
            " layers"));
      }
      absl::Status status = NameLayerTensor(i, words[1], words[2]);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

void GgufCheckpoint::ReadTokenizer() {
  for (const auto& [key, value] : file_.metadata()) {
    absl::string_view name = key;
    if (!absl::ConsumePrefix(&name, "tokenizer.")) continue;
    const JsonValue& scalar = value.scalar;
    std::string text = absl::StrCat(value.count, " entries");
    if (const std::string* string = scalar.AsString(); string != nullptr) {
      text = internal::Quote(*string);
    } else if (const int64_t* integer = scalar.AsInt(); integer != nullptr) {
      text = absl::StrCat(*integer);
    } else if (const bool* flag = scalar.AsBool(); flag != nullptr) {
      text = *flag ? "true" : "false";
    } else if (const double* number = scalar.AsDouble(); number != nullptr) {
      text = absl::StrCat(*number);
    }
    tokenizer_.emplace_back(std::string(name), std::move(text));
  }
}

absl::StatusOr<GgufCheckpoint> GgufCheckpoint::Open(const std::string& path) {
  absl::StatusOr<GgufFile> file = GgufFile::Open(path);
  if (!file.ok()) return file.status();
  GgufCheckpoint result(*std::move(file));
  if (auto s = result.ReadConfig(); !s.ok()) return s;
  if (auto s = result.NameTensors(); !s.ok()) return s;
  result.ReadTokenizer();
  return result;
}

absl::Status GgufCheckpoint::DecodeRows(const GgufWeight& weight, int64_t start,
                                        int64_t count,
                                        absl::Span<float> out) const {
  const GgufTensor& tensor = file_.tensors()[weight.tensor];
  const bool flat = tensor.shape.size() == 1;
  const int64_t columns =
      flat && weight.shape.size() == 1 ? 1 : tensor.columns();
  const int64_t rows = flat ? tensor.columns() / columns : weight.shape[0];
  if (start < 0 || count < 0 || start > rows - count ||
      static_cast<int64_t>(out.size()) != count * columns) {
    return absl::InvalidArgumentError(absl::StrCat(
        weight.name, ": ", count, " rows from row ", start, " of ", rows));
  }
  if (flat) {  // a vector is short: read it whole
    std::vector<float> all(static_cast<size_t>(tensor.columns()));
    absl::Status status = file_.DecodeRows(tensor, 0, 1, absl::MakeSpan(all));
    if (!status.ok()) return status;
    for (int64_t i = 0; i < count * columns; ++i) {
      int64_t from = start * columns + i;
      if (weight.rotary_heads > 0) {
        const int64_t half = head_dim_ / 2;
        const int64_t r = from % head_dim_;
        from += r % half * 2 + r / half - r;
      }
      out[static_cast<size_t>(i)] = all[static_cast<size_t>(from)];
    }
    return absl::OkStatus();
  }
  if (weight.rotary_heads == 0) {
    return file_.DecodeRows(tensor, weight.first_row + start, count, out);
  }
  // Half h of pair i was written as row 2 i + h of its head.
  const int64_t first = start / head_dim_ * head_dim_;
  const int64_t last = (start + count + head_dim_ - 1) / head_dim_ * head_dim_;
  const size_t width = static_cast<size_t>(columns);
  std::vector<float> head(static_cast<size_t>(head_dim_) * width);
  for (int64_t h = first; h < last; h += head_dim_) {
    absl::Status status =
        file_.DecodeRows(tensor, h, head_dim_, absl::MakeSpan(head));
    if (!status.ok()) return status;
    for (int64_t r = std::max(start, h);
         r < std::min(start + count, h + head_dim_); ++r) {
      const int64_t half = head_dim_ / 2;
      const int64_t from = (r - h) % half * 2 + (r - h) / half;
      std::copy_n(head.begin() + from * columns, width,
                  out.begin() + (r - start) * columns);
    }
  }
  return absl::OkStatus();
}

}  // namespace espalier
