#include "espalier/model/qwen2/config.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/model/internal/config_test_util.h"

namespace espalier::qwen2 {
namespace {

using test::Parsed;
using test::Refusal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The keys of Qwen2.5-7B-Instruct.
TEST(Qwen2ConfigTest, ReadsTheReleasedKeys) {
  const DecoderConfig config =
      Parsed(ParseConfig,
             R"({"architectures":["Qwen2ForCausalLM"],"attention_dropout":0.0,
          "bos_token_id":1,"eos_token_id":2,"hidden_act":"silu",
          "initializer_range":0.02,"max_position_embeddings":32768,
          "max_window_layers":28,"model_type":"qwen2","num_key_value_heads":1,
          "rms_norm_eps":1e-06,"rope_theta":1000000.0,"sliding_window":131072,
          "tie_word_embeddings":false,"torch_dtype":"bfloat16",
          "transformers_version":"4.43.1","use_cache":true,"use_mrope":false,
          "use_sliding_window":false})");
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.o_bias || config.mlp_bias || config.head_norm);
  EXPECT_EQ(config.num_key_value_heads, 1);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_THAT(config.windows, ElementsAre(0, 0, 0, 0));
}

TEST(Qwen2ConfigTest, RefusesOtherForms) {
  EXPECT_THAT(Refusal(ParseConfig, R"({"use_mrope":true})"),
              HasSubstr("use_mrope is true, expected false"));
  EXPECT_THAT(Refusal(ParseConfig, R"({"attention_bias":false})"),
              HasSubstr("family qwen2 does not know: attention_bias"));
}

}  // namespace
}  // namespace espalier::qwen2
