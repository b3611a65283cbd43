#include "espalier/model/mistral/config.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/model/internal/config_test_util.h"

namespace espalier::mistral {
namespace {

using test::Parsed;
using test::Refusal;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(MistralConfigTest, TheWindowIsOfEveryLayer) {
  const DecoderConfig config = Parsed(ParseConfig, R"({"sliding_window":7})");
  EXPECT_THAT(config.windows, SizeIs(4));
  EXPECT_THAT(config.windows, Each(7));
  EXPECT_FALSE(config.qkv_bias || config.o_bias || config.mlp_bias);
}

// An absent key is not null: transformers gives it the released value.
TEST(MistralConfigTest, NullIsNoWindowAndAbsentTheReleased) {
  EXPECT_THAT(Parsed(ParseConfig, R"({"sliding_window":null})").windows,
              Each(0));
  EXPECT_THAT(Parsed(ParseConfig, "{}").windows, Each(4096));
}

TEST(MistralConfigTest, RefusesOtherForms) {
  EXPECT_THAT(Refusal(ParseConfig, R"({"sliding_window":0})"),
              HasSubstr("sliding_window is 0, expected 1 or more, or null"));
  EXPECT_THAT(Refusal(ParseConfig, R"({"layer_types":["full_attention"]})"),
              HasSubstr("family mistral does not know: layer_types"));
  EXPECT_THAT(Refusal(ParseConfig, R"({"attention_bias":true})"),
              HasSubstr("family mistral does not know: attention_bias"));
}

}  // namespace
}  // namespace espalier::mistral
