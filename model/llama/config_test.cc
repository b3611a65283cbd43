#include "espalier/model/llama/config.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/json_object.h"

namespace espalier::llama {
namespace {

using ::testing::HasSubstr;

// A config of these members, the last of a name counting.
absl::StatusOr<Config> Parse(const std::string& key, const std::string& value) {
  std::vector<std::pair<std::string, std::string>> members = {
      {"vocab_size", "32"},         {"hidden_size", "8"},
      {"intermediate_size", "12"},  {"num_hidden_layers", "2"},
      {"num_attention_heads", "2"}, {"head_dim", "4"}};
  for (auto& [name, number] : members) {
    if (name == key) number = value;
  }
  std::string text;
  for (const auto& [name, number] : members) {
    absl::StrAppend(&text, text.empty() ? "{\"" : ",\"", name, "\":", number);
  }
  auto json = JsonObject::Parse(text + "}", "config.json");
  if (!json.ok()) return json.status();
  return ParseConfig(*json);
}

TEST(LlamaConfigTest, ReadsSizes) {
  const auto config = Parse("num_hidden_layers", "3");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_hidden_layers, 3);
  EXPECT_EQ(config->head_dim, 4);
}

// Modules are built from these numbers before a tensor is looked at.
TEST(LlamaConfigTest, RefusesNumbersWithoutBound) {
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "head_dim"}) {
    for (const char* value : {"0", "-1", "1000000000", "9223372036854775806"}) {
      const auto config = Parse(key, value);
      EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(config.status().message()),
                  HasSubstr(absl::StrCat("config.json: ", key, " is ", value)));
    }
  }
}

}  // namespace
}  // namespace espalier::llama
