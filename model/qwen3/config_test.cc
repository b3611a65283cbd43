#include "espalier/model/qwen3/config.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/model/internal/config_test_util.h"

namespace espalier::qwen3 {
namespace {

using test::Parsed;
using test::Refusal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The keys of Qwen3-8B.
TEST(Qwen3ConfigTest, ReadsTheReleasedKeys) {
  const DecoderConfig config =
      Parsed(ParseConfig,
             R"({"architectures":["Qwen3ForCausalLM"],"attention_bias":false,
          "attention_dropout":0.0,"bos_token_id":1,"eos_token_id":2,
          "hidden_act":"silu","initializer_range":0.02,
          "max_position_embeddings":40960,"max_window_layers":36,
          "model_type":"qwen3","num_key_value_heads":1,"rms_norm_eps":1e-06,
          "rope_scaling":null,"rope_theta":1000000,"sliding_window":null,
          "tie_word_embeddings":false,"torch_dtype":"bfloat16",
          "transformers_version":"4.51.0","use_cache":true,
          "use_sliding_window":false})");
  EXPECT_TRUE(config.head_norm);
  EXPECT_FALSE(config.qkv_bias || config.o_bias || config.mlp_bias);
  EXPECT_THAT(config.windows, ElementsAre(0, 0, 0, 0));
}

TEST(Qwen3ConfigTest, AttentionBiasIsOfAllFour) {
  const DecoderConfig config =
      Parsed(ParseConfig, R"({"attention_bias":true})");
  EXPECT_TRUE(config.qkv_bias && config.o_bias && !config.mlp_bias);
}

TEST(Qwen3ConfigTest, RefusesOtherForms) {
  EXPECT_THAT(Refusal(ParseConfig, R"({"mlp_bias":true})"),
              HasSubstr("family qwen3 does not know: mlp_bias"));
}

}  // namespace
}  // namespace espalier::qwen3
