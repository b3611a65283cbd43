#ifndef ESPALIER_IO_INTERNAL_FAMILY_BUILDER_H_
#define ESPALIER_IO_INTERNAL_FAMILY_BUILDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/family_table.h"
#include "espalier/io/internal/quantization_forms.h"
#include "espalier/io/json_object.h"

namespace espalier {

// One line of a family's table.
//   name   "@" at the start stands for the text model's prefix, "^" for the
//          head's; {set} for a number of a named set: "e" is the routed
//          expert, "v" a block of a vision tower, the others are layers.
//   shape  expressions of the family's variables, "N*D, H"
//   split  "" replicated; "0/D" dim 0 in units of D elements;
//          "0/D|Q,K,V" each of three blocks of dim 0
//   when   a variable that must not be 0, or ""
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): as tables are read
struct FamilyRow {
  absl::string_view name;
  absl::string_view shape;
  TensorRole role;
  absl::string_view split = "";
  SafetensorsDType dtype = SafetensorsDType::kBF16;
  absl::string_view when = "";
  bool optional = false;
};

// What every family has: V vocabulary, H hidden size; "tied" or "untied" is 1.
inline constexpr FamilyRow kTopRows[] = {
    {"@embed_tokens.weight", "V,H", TensorRole::kEmbedding, "0"},
    {"@norm.weight", "H", TensorRole::kNorm},
    {"^lm_head.weight", "V,H", TensorRole::kHead, "0", SafetensorsDType::kBF16,
     "untied"},
    {"^lm_head.weight", "V,H", TensorRole::kHead, "0", SafetensorsDType::kBF16,
     "tied", true},
    {"@layers.{all}.input_layernorm.weight", "H", TensorRole::kNorm},
    {"@layers.{all}.post_attention_layernorm.weight", "H", TensorRole::kNorm},
};

// Collects a family's variables and layer sets, then turns rows into rules.
class FamilyBuilder {
 public:
  // `config` is the text model's part of `outer`, or the same.
  FamilyBuilder(const JsonObject& outer, const JsonObject& config)
      : outer_(outer), config_(config) {}

  FamilyFacts& facts() { return facts_; }
  const JsonObject& outer() const { return outer_; }
  const JsonObject& config() const { return config_; }

  // Variables. Read takes a required key of the config, ReadOr an optional
  // one; an error is kept and returned by Finish. What sizes tensors must be
  // from 0 to 2^31.
  void Set(absl::string_view name, int64_t value);
  int64_t Get(absl::string_view name) const;
  void Read(absl::string_view name, absl::string_view key);
  void Read(const JsonObject& json, absl::string_view name,
            absl::string_view key);
  void ReadOr(absl::string_view name, absl::string_view key, int64_t value);
  void ReadOr(const JsonObject& json, absl::string_view name,
              absl::string_view key, int64_t value);
  bool ReadBool(absl::string_view key, bool value);
  std::vector<int64_t> ReadInts(const JsonObject& json, absl::string_view key);
  std::vector<std::string> ReadStrings(absl::string_view key);
  // An object, empty where the config has none.
  JsonObject ReadObject(const JsonObject& json, absl::string_view key);

  void SetPrefix(std::string text, std::string head);
  void SetLayers(absl::string_view set, std::vector<int32_t> numbers);
  const std::vector<int32_t>& Layers(absl::string_view set);
  // The layers of [0, num_layers) for which `in_set`.
  template <typename Fn>
  std::vector<int32_t> LayersIf(Fn in_set) const {
    std::vector<int32_t> layers;
    for (int32_t i = 0; i < facts_.num_layers; ++i) {
      if (in_set(i)) layers.push_back(i);
    }
    return layers;
  }
  // Routed experts of a layer, and how many a token meets.
  void SetExperts(int64_t num_experts, int64_t top_k);
  // Text for layers of the set in tables.
  void Label(absl::string_view set, absl::string_view label);
  // Dense stacked experts lie as [E, in, out].
  void SetTransposedExperts() { transposed_experts_ = true; }
  // Names with this prefix are left alone.
  void AddBeside(std::string prefix) { beside_.push_back(std::move(prefix)); }
  void Fail(absl::Status status);

  void Add(absl::Span<const FamilyRow> rows);
  // kTopRows, with "tied" and "untied" as facts() says.
  void AddTop();
  // The rows again for prediction layers: `sets` are those that such a layer
  // belongs to; all of its tensors are there or none.
  void AddPrediction(absl::Span<const FamilyRow> rows,
                     absl::Span<const absl::string_view> sets);
  // Rows of an optional part of the model: all of its tensors or none.
  void AddGroup(absl::Span<const FamilyRow> rows);

  // Gives every rule the forms that the scheme allows.
  absl::StatusOr<FamilyTable> Finish(const QuantizationScheme& scheme);

 private:
  void AddRow(const FamilyRow& row, int group, bool prediction);
  bool FillHoles(const FamilyRow& row, bool prediction, TensorRule* rule);
  void FillPlace(bool prediction, TensorRule* rule) const;
  absl::Status CheckSizes() const;
  std::vector<int64_t> EvaluateList(absl::string_view text);
  int64_t Evaluate(absl::string_view text);
  void ParseSplit(absl::string_view text, TensorSplit* split);

  const JsonObject& outer_;
  const JsonObject& config_;
  FamilyFacts facts_;
  absl::Status status_;
  std::map<std::string, int64_t, std::less<>> variables_;
  std::map<std::string, std::vector<int32_t>, std::less<>> sets_;
  std::string prefix_ = "model.";
  std::string head_prefix_;
  bool transposed_experts_ = false;
  std::vector<TensorRule> rules_;
  std::vector<std::string> beside_;
  int num_groups_ = 0;
};

// The families, each with its model_type and aliases. Reads the config into
// the builder and adds the rows.
struct FamilyEntry {
  absl::string_view model_type;
  void (*build)(FamilyBuilder& builder);
  // Key of the object that holds the text model's settings; "" for none.
  absl::string_view nested = "";
};

// The sets "moe" and "dense" from decoder_sparse_step and mlp_only_layers, and
// the experts from the variables E and K.
void SetSparseLayers(FamilyBuilder& builder);

void BuildLlama(FamilyBuilder& builder);       // llama, mistral, qwen2, qwen3
void BuildMoe(FamilyBuilder& builder);         // qwen3_moe, mixtral, olmoe
void BuildQwenHybrid(FamilyBuilder& builder);  // qwen3_next, qwen3_5(_moe)
void BuildDeepseek(FamilyBuilder& builder);    // deepseek_v3, v32, glm_moe_dsa
void BuildGlm5Next(FamilyBuilder& builder);
void BuildKimi(FamilyBuilder& builder);  // kimi_linear, kimi_k3
void BuildGptOss(FamilyBuilder& builder);

}  // namespace espalier

#endif  // ESPALIER_IO_INTERNAL_FAMILY_BUILDER_H_
