#include "espalier/io/chat_sample.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/chat_test_util.h"

namespace espalier {
namespace {

using test::ChatOf;
using test::kChatMl;
using ::testing::AllOf;
using ::testing::HasSubstr;

using ChatSampleTest = test::ChatTest;

TEST_F(ChatSampleTest, SamplesOfADataSetAreChats) {
  const auto encoder = MakeChatSampleEncoder(
      MakeTemplateEncoder(kChatMl, config_, "t", tokenizer_),
      MakePlainEncoder(tokenizer_, {}), tokenizer_, options_);
  Example example;
  example.kind = Example::Kind::kChat;
  example.messages = ChatOf(R"([{"role":"user","content":"a"},)"
                            R"({"role":"assistant","content":"x"}])")
                         .messages;
  const auto sample = encoder->Encode(example);
  ASSERT_TRUE(sample.ok()) << sample.status();
  std::string roles;
  for (size_t i = 0; i < sample->ids.size(); ++i) {
    roles += ToString(sample->roles[i])[0];
    if (sample->weights[i] != 0) roles += '!';
  }
  // <s><|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nx<|im_end|>\n
  EXPECT_EQ(roles, "ccuuuuuucucaaaaaaaaaaa!c!a");
  example.kind = Example::Kind::kText;
  example.text.assign(1, 't');
  EXPECT_EQ(encoder->Encode(example)->ids.size(), 3u);
  example.kind = Example::Kind::kChat;
  const auto none = MakeChatSampleEncoder(absl::NotFoundError("no template"),
                                          MakePlainEncoder(tokenizer_, {}),
                                          tokenizer_, options_);
  EXPECT_EQ(none->Encode(example).status().message(), "no template");
}

TEST(ChatSampleRequestTest, LayoutsSeeToolsAndTheRequest) {
  const test::AddedByteTokenizer tokenizer = test::KimiK3Tokenizer();
  KimiK3Options k3;
  k3.declare_tools.before = "Tools: ";
  k3.thinking_effort.before = "Effort: ";
  k3.tools_required = "Call!";
  const auto encoder =
      MakeChatSampleEncoder(MakeKimiK3Encoder(tokenizer, k3),
                            MakePlainEncoder(tokenizer, {}), tokenizer, {});
  const auto example =
      ParseExample(R"({"messages":[{"role":"user","content":"a"}],"tools":[3],)"
                   R"("thinking_effort":"low","tool_choice":"required"})",
                   {}, "f");
  ASSERT_TRUE(example.ok()) << example.status();
  const auto sample = encoder->Encode(*example);
  ASSERT_TRUE(sample.ok()) << sample.status();
  const std::string text = tokenizer.Decode(sample->ids);
  EXPECT_THAT(text, AllOf(HasSubstr("Tools: [3]"), HasSubstr("Effort: low"),
                          HasSubstr("Call!")));
}

}  // namespace
}  // namespace espalier
