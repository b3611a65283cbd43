#include "espalier/model/llama/config.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/model/internal/config_test_util.h"

namespace espalier::llama {
namespace {

using test::Parsed;
using test::Refusal;
using ::testing::HasSubstr;

TEST(LlamaConfigTest, ReadsSizes) {
  const DecoderConfig config = Parsed(ParseConfig, R"({"pretraining_tp":1})");
  EXPECT_EQ(config.num_hidden_layers, 4);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.num_key_value_heads, 2);
  EXPECT_FALSE(config.qkv_bias || config.o_bias || config.mlp_bias ||
               config.head_norm || config.tie_word_embeddings);
  EXPECT_THAT(config.windows, ::testing::ElementsAre(0, 0, 0, 0));
}

TEST(LlamaConfigTest, BiasesAreOfAttentionOrOfTheMlp) {
  const DecoderConfig attention =
      Parsed(ParseConfig, R"({"attention_bias":true})");
  EXPECT_TRUE(attention.qkv_bias && attention.o_bias && !attention.mlp_bias);
  const DecoderConfig mlp = Parsed(ParseConfig, R"({"mlp_bias":true})");
  EXPECT_TRUE(!mlp.qkv_bias && !mlp.o_bias && mlp.mlp_bias);
}

// Modules are built from these numbers before a tensor is looked at.
TEST(LlamaConfigTest, RefusesNumbersWithoutBound) {
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "head_dim"}) {
    for (const char* value : {"0", "-1", "1000000000", "9223372036854775806"}) {
      EXPECT_THAT(
          Refusal(ParseConfig, absl::StrCat("{\"", key, "\":", value, "}")),
          HasSubstr(absl::StrCat("config.json: ", key, " is ", value)));
    }
  }
}

TEST(LlamaConfigTest, RefusesWhatItDoesNotCompute) {
  for (
      const auto& [change, message] :
      {std::pair{R"({"attention_dropout":0.1})", "attention_dropout is 0.1"},
       {R"({"hidden_act":"gelu"})", "hidden_act is \"gelu\""},
       {R"({"rms_norm_eps":0})", "rms_norm_eps is 0"},
       {R"({"num_attention_heads":6,"num_key_value_heads":4})",
        "num_key_value_heads is 4, expected a divisor"},
       {R"({"sliding_window":9,"logit_scale":2})",
        "family llama does not know: sliding_window, logit_scale"},
       {R"({"rope_parameters":{"rope_theta":1e4,"partial_rotary_factor":0.5}})",
        "rope_parameters.partial_rotary_factor"}}) {
    EXPECT_THAT(Refusal(ParseConfig, change), HasSubstr(message));
  }
  EXPECT_EQ(Refusal(ParseConfig, R"({"attention_dropout":0.0})"), "");
}

}  // namespace
}  // namespace espalier::llama
