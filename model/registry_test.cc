#include "espalier/model/registry.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/family_table.h"
#include "espalier/io/json.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using Shapes = std::map<std::string, std::vector<int64_t>>;

class RegistryTest : public ::testing::TestWithParam<std::string> {
 protected:
  // The fixture's config with a member changed; null takes it out.
  static JsonObject Config(const std::string& key = "",
                           const JsonValue& value = JsonValue()) {
    const std::string path = absl::StrCat(
        ESPALIER_SOURCE_DIR, "/tests/fixtures/", GetParam(), "/config.json");
    const auto base = JsonObject::ReadFile(path);
    EXPECT_TRUE(base.ok()) << base.status();
    JsonValue json;
    for (const std::string& name : base->keys()) {
      json.Set(name, *base->GetValue(name));
    }
    if (!key.empty()) json.Set(key, value);
    auto object = JsonObject::From(std::move(json), "config.json");
    EXPECT_TRUE(object.ok()) << object.status();
    return *std::move(object);
  }
};

Shapes OfModel(CausalLm& model) {
  Shapes shapes;
  model.ForEachParameter([&](Parameter& parameter) {
    std::vector<int64_t> shape;
    shape.reserve(static_cast<size_t>(parameter.shape().ndim()));
    for (int i = 0; i < parameter.shape().ndim(); ++i) {
      shape.push_back(parameter.shape().dim(i));
    }
    EXPECT_TRUE(shapes.emplace(parameter.name(), shape).second);
  });
  return shapes;
}

Shapes OfTable(const FamilyTable& table) {
  Shapes shapes;
  for (const TensorRule& rule : table.rules()) {
    if (rule.optional) continue;
    for (int64_t i = 0; i < rule.num_instances(); ++i) {
      shapes.emplace(table.NameOf(rule, rule.name, i), rule.shape);
    }
  }
  return shapes;
}

// What io says of a folder, to verify, cut and convert it, is what the model
// takes from it.
TEST_P(RegistryTest, TableAndModelHaveTheSameTensors) {
  int64_t num_compared = 0;
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, JsonValue>>{
           {"", JsonValue()},
           {"tie_word_embeddings", true},
           {"tie_word_embeddings", false},
           {"attention_bias", true},
           {"attention_bias", false},
           {"mlp_bias", true},
           {"mlp_bias", false},
           {"num_key_value_heads", JsonValue()},
           {"num_key_value_heads", 1},
           {"head_dim", 26}}) {
    const auto model = CreateModel(Config(key, value));
    if (!model.ok()) {
      // Not a key of this family.
      EXPECT_THAT(std::string(model.status().message()),
                  HasSubstr(absl::StrCat("does not know: ", key)));
      continue;
    }
    const auto table = FamilyTable::FromConfig(Config(key, value));
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_EQ(OfModel(**model), OfTable(*table)) << key;
    EXPECT_EQ((*model)->num_layers(), table->facts().num_layers);
    EXPECT_EQ((*model)->vocab_size(), table->facts().vocab_size);
    ++num_compared;
  }
  EXPECT_GE(num_compared, 6);
}

TEST_P(RegistryTest, RefusesAnUnknownKey) {
  const auto model = CreateModel(Config("residual_multiplier", 0.5));
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(model.status().message()),
      HasSubstr(absl::StrCat("config.json: keys that family ", GetParam(),
                             " does not know: residual_multiplier")));
}

TEST_P(RegistryTest, RefusesFrequenciesThatItDoesNotCompute) {
  JsonValue scaling;
  scaling.Set("rope_type", "dynamic");
  scaling.Set("factor", 2.0);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto model = CreateModel(Config(key, scaling));
    EXPECT_THAT(std::string(model.status().message()),
                HasSubstr(absl::StrCat(key, ".rope_type is \"dynamic\"")));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, RegistryTest,
                         ::testing::ValuesIn(ModelFamilies()),
                         [](const auto& info) { return info.param; });

TEST(RegistryErrorTest, NamesTheFamiliesThatThereAre) {
  auto json = JsonObject::Parse(R"({"model_type":"bloom"})", "config.json");
  ASSERT_TRUE(json.ok());
  EXPECT_THAT(std::string(CreateModel(*json).status().message()),
              HasSubstr("model_type is \"bloom\", expected one of llama, "));
}

}  // namespace
}  // namespace espalier
