#include "espalier/model/registry.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "espalier/model/decoder.h"
#include "espalier/model/llama/config.h"
#include "espalier/model/mistral/config.h"
#include "espalier/model/qwen2/config.h"
#include "espalier/model/qwen3/config.h"

namespace espalier {

namespace {

using Model = absl::StatusOr<std::unique_ptr<CausalLm>>;

template <absl::StatusOr<DecoderConfig> (*kParse)(const JsonObject& json)>
Model Dense(const JsonObject& json) {
  const auto config = kParse(json);
  if (!config.ok()) return config.status();
  return std::make_unique<Decoder>(*config);
}

struct Family {
  absl::string_view model_type;
  Model (*create)(const JsonObject& json);
};

constexpr Family kFamilies[] = {
    {"llama", Dense<llama::ParseConfig>},
    {"mistral", Dense<mistral::ParseConfig>},
    {"qwen2", Dense<qwen2::ParseConfig>},
    {"qwen3", Dense<qwen3::ParseConfig>},
};

}  // namespace

std::vector<std::string> ModelFamilies() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) {
    names.emplace_back(family.model_type);
  }
  return names;
}

absl::StatusOr<std::unique_ptr<CausalLm>> CreateModel(const JsonObject& json) {
  std::string model_type;
  const absl::Status read = json.Get("model_type", &model_type);
  if (!read.ok()) return read;
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return family.create(json);
  }
  return json.Error("model_type",
                    absl::StrCat("is \"", model_type, "\", expected one of ",
                                 absl::StrJoin(ModelFamilies(), ", ")));
}

absl::StatusOr<std::unique_ptr<CausalLm>> CreateModel(const std::string& dir) {
  auto json = JsonObject::ReadFile(absl::StrCat(dir, "/config.json"));
  if (!json.ok()) return json.status();
  return CreateModel(*json);
}

}  // namespace espalier
