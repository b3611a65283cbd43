#include "espalier/io/family_table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "espalier/io/internal/family_builder.h"
#include "espalier/io/internal/file.h"

namespace espalier {

namespace {

constexpr size_t kMaxNumbers = 4;
constexpr int64_t kMaxLayers = 10'000;

constexpr FamilyEntry kFamilies[] = {
    {"kimi_k3", BuildKimi, "text_config"},
    {"kimi_linear", BuildKimi},
    {"glm5_next", BuildGlm5Next, "text_config"},
    {"deepseek_v3", BuildDeepseek},
    {"deepseek_v32", BuildDeepseek},
    {"glm_moe_dsa", BuildDeepseek},
    {"kimi_k2", BuildDeepseek},
    {"llama", BuildLlama},
    {"mistral", BuildLlama},
    {"qwen2", BuildLlama},
    {"qwen3", BuildLlama},
    {"qwen2_moe", BuildMoe},
    {"qwen3_moe", BuildMoe},
    {"mixtral", BuildMoe},
    {"olmoe", BuildMoe},
    {"qwen3_next", BuildQwenHybrid},
    {"qwen3_5", BuildQwenHybrid, "text_config"},
    {"qwen3_5_moe", BuildQwenHybrid, "text_config"},
    {"gpt_oss", BuildGptOss},
};

int32_t HoleIndex(const std::vector<int32_t>& hole, int32_t number) {
  const auto found = std::lower_bound(hole.begin(), hole.end(), number);
  if (found == hole.end() || *found != number) return -1;
  return static_cast<int32_t>(found - hole.begin());
}

}  // namespace

absl::string_view ToString(TensorRole role) {
  switch (role) {
    case TensorRole::kEmbedding:
      return "embedding";
    case TensorRole::kHead:
      return "head";
    case TensorRole::kNorm:
      return "norm";
    case TensorRole::kAttention:
      return "attention";
    case TensorRole::kAttentionOther:
      return "attention_other";
    case TensorRole::kMlp:
      return "mlp";
    case TensorRole::kRouter:
      return "router";
    case TensorRole::kExpert:
      return "expert";
    case TensorRole::kSharedExpert:
      return "shared_expert";
    case TensorRole::kLatent:
      return "latent";
    case TensorRole::kResidual:
      return "residual";
    case TensorRole::kVision:
      return "vision";
    case TensorRole::kPrediction:
      return "prediction";
  }
  return "";
}

int64_t TensorRule::num_elements() const {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

int64_t TensorRule::num_instances() const {
  int64_t count = 1;
  for (const std::vector<int32_t>& hole : holes) {
    count *= static_cast<int64_t>(hole.size());
  }
  return count;
}

bool ToPattern(absl::string_view name, std::string* pattern,
               absl::InlinedVector<int32_t, 4>* numbers) {
  pattern->clear();
  numbers->clear();
  size_t start = 0;
  while (start <= name.size()) {
    const size_t dot = std::min(name.find('.', start), name.size());
    const absl::string_view word = name.substr(start, dot - start);
    int64_t number = 0;
    bool is_number = !word.empty() && word.size() <= 9 &&
                     (word[0] != '0' || word.size() == 1);
    for (const char c : word) {
      is_number = is_number && c >= '0' && c <= '9';
      number = number * 10 + (c - '0');
      if (!is_number) break;
    }
    if (start > 0) pattern->push_back('.');
    if (is_number) {
      if (numbers->size() == kMaxNumbers) return false;
      numbers->push_back(static_cast<int32_t>(number));
      pattern->push_back('#');
    } else {
      pattern->append(word.data(), word.size());
    }
    start = dot + 1;
  }
  return true;
}

std::vector<std::string> FamilyTable::Families() {
  std::vector<std::string> names;
  for (const FamilyEntry& entry : kFamilies) {
    names.emplace_back(entry.model_type);
  }
  return names;
}

absl::StatusOr<FamilyTable> FamilyTable::FromConfig(const JsonObject& config) {
  std::string model_type;
  absl::Status status = config.Get("model_type", &model_type);
  if (!status.ok()) return status;
  const auto entry = std::find_if(
      std::begin(kFamilies), std::end(kFamilies),
      [&](const FamilyEntry& e) { return e.model_type == model_type; });
  if (entry == std::end(kFamilies)) {
    return absl::UnimplementedError(
        absl::StrCat(config.where(), ": model_type \"", model_type,
                     "\" has no table of tensors; known are ",
                     absl::StrJoin(Families(), ", ")));
  }
  JsonObject text = config;
  if (!entry->nested.empty() && config.Has(entry->nested)) {
    status = config.Get(entry->nested, &text);
    if (!status.ok()) return status;
  }
  FamilyBuilder builder(config, text);
  FamilyFacts& facts = builder.facts();
  facts.model_type = model_type;
  builder.Read("L", "num_hidden_layers");
  builder.Read("H", "hidden_size");
  builder.Read("V", "vocab_size");
  facts.num_layers = builder.Get("L");
  facts.hidden_size = builder.Get("H");
  facts.vocab_size = builder.Get("V");
  if (facts.num_layers > kMaxLayers) {
    return text.Error("num_hidden_layers",
                      absl::StrCat("is ", facts.num_layers,
                                   ", expected at most ", kMaxLayers));
  }
  // The outer flag rules, the text model's stands in for it.
  bool tied = builder.ReadBool("tie_word_embeddings", false);
  status = config.GetOptional("tie_word_embeddings", &tied);
  if (!status.ok()) return status;
  facts.tied_head = tied;
  const absl::StatusOr<QuantizationScheme> scheme = ReadQuantization(config);
  if (!scheme.ok()) return scheme.status();
  facts.quantization = scheme->name;
  builder.SetLayers("all", builder.LayersIf([](int32_t) { return true; }));
  entry->build(builder);
  absl::StatusOr<FamilyTable> table = builder.Finish(*scheme);
  if (!table.ok()) return table.status();
  return table;
}

absl::StatusOr<FamilyTable> FamilyTable::Load(const std::string& dir) {
  return Load(*Folder::Local(dir));
}

absl::StatusOr<FamilyTable> FamilyTable::Load(const Folder& folder) {
  absl::StatusOr<JsonValue> json = folder.ReadJson("config.json");
  if (!json.ok()) return json.status();
  const absl::StatusOr<JsonObject> config =
      JsonObject::From(*std::move(json), folder.PathOf("config.json"));
  if (!config.ok()) return config.status();
  return FromConfig(*config);
}

void FamilyTable::Index() {
  for (uint32_t r = 0; r < rules_.size(); ++r) {
    for (uint32_t p = 0; p < rules_[r].parts.size(); ++p) {
      places_[rules_[r].parts[p].pattern].emplace_back(r, p);
    }
  }
}

bool FamilyTable::Find(absl::string_view name, SafetensorsDType dtype,
                       Match* match) const {
  std::string pattern;
  absl::InlinedVector<int32_t, 4> numbers;
  if (!ToPattern(name, &pattern, &numbers)) return false;
  const auto places = places_.find(pattern);
  if (places == places_.end()) return false;
  bool found = false;
  for (const auto& [r, p] : places->second) {
    const TensorRule& rule = rules_[r];
    if (rule.holes.size() != numbers.size()) continue;
    int64_t instance = 0;
    bool inside = true;
    for (size_t i = 0; i < numbers.size() && inside; ++i) {
      const int32_t index = HoleIndex(rule.holes[i], numbers[i]);
      inside = index >= 0;
      instance = instance * static_cast<int64_t>(rule.holes[i].size()) + index;
    }
    if (!inside) continue;
    const bool fits =
        (rule.parts[p].dtypes >> static_cast<int>(dtype) & 1) != 0;
    if (found && !fits) continue;
    match->rule = r;
    match->part = p;
    match->instance = static_cast<uint32_t>(instance);
    match->numbers = {-1, -1};
    for (size_t i = 0; i < numbers.size() && i < 2; ++i) {
      match->numbers[i] = numbers[i];
    }
    found = true;
    if (fits) break;
  }
  return found;
}

bool FamilyTable::IsBesideTable(absl::string_view name) const {
  return std::any_of(beside_.begin(), beside_.end(),
                     [&](const std::string& prefix) {
                       return absl::StartsWith(name, prefix);
                     });
}

std::string FamilyTable::NameOf(const TensorRule& rule,
                                absl::string_view pattern,
                                int64_t instance) const {
  std::array<int64_t, 2> numbers = {};
  for (size_t i = rule.holes.size(); i-- > 0;) {
    const int64_t size = static_cast<int64_t>(rule.holes[i].size());
    numbers[i] = rule.holes[i][static_cast<size_t>(instance % size)];
    instance /= size;
  }
  std::string name;
  size_t hole = 0;
  for (const char c : pattern) {
    if (c == '#') {
      absl::StrAppend(&name, numbers[hole++]);
    } else {
      name.push_back(c);
    }
  }
  return name;
}

int64_t FamilyTable::max_stages() const {
  const int64_t block = facts_.pipeline_block;
  return std::max<int64_t>(1, (facts_.num_layers + block - 1) / block);
}

int FamilyTable::StageOf(const TensorRule& rule,
                         const std::array<int32_t, 2>& numbers,
                         int num_stages) const {
  switch (rule.place) {
    case PipelinePlace::kFirst:
      return 0;
    case PipelinePlace::kLast:
      return num_stages - 1;
    case PipelinePlace::kEvery:
      return num_stages == 1 ? 0 : -1;
    case PipelinePlace::kLayer:
      break;
  }
  // Stage s has the blocks [s * n / stages, (s + 1) * n / stages).
  const int64_t layer = numbers[static_cast<size_t>(rule.layer_hole)];
  const int64_t block = layer / facts_.pipeline_block;
  return static_cast<int>(((block + 1) * num_stages - 1) / max_stages());
}

}  // namespace espalier
