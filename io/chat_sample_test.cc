#include "espalier/io/chat_sample.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
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

// The code tells a bad record from a folder that lacks something.
TEST(ChatSampleRequestTest, RecordsAndFoldersAreToldApart) {
  const test::AddedByteTokenizer tokenizer = test::KimiK3Tokenizer();
  const auto code = [&](std::unique_ptr<ChatEncoder> layout,
                        absl::string_view content, absl::string_view more) {
    const auto example = ParseExample(
        absl::StrCat(R"({"messages":[{"role":"user","content":)", content,
                     R"(},{"role":"assistant","content":"b"}],)",
                     R"("thinking_effort":"none")", more, "}"),
        {}, "f");
    EXPECT_TRUE(example.ok()) << example.status();
    return MakeChatSampleEncoder(std::move(layout),
                                 MakePlainEncoder(tokenizer, {}), tokenizer, {})
        ->Encode(*example)
        .status()
        .code();
  };
  const auto k3 = [&] { return MakeKimiK3Encoder(tokenizer, {}); };
  EXPECT_EQ(code(k3(), R"("a")", ""), absl::StatusCode::kOk);
  EXPECT_EQ(code(k3(), R"([{"type":"image"}])", ""),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(k3(), R"("a")", R"(,"tools":[3])"),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(code(MakeKimiLinearEncoder(tokenizer), R"("a")", ""),
            absl::StatusCode::kNotFound);
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
