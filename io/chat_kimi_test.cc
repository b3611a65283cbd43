#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/chat.h"
#include "espalier/io/internal/chat_test_util.h"

namespace espalier {
namespace {

using test::AddedByteTokenizer;
using test::ChatOf;
using test::KimiK3Tokenizer;
using test::Show;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

AddedByteTokenizer KimiLinearTokenizer() {
  return AddedByteTokenizer({{"[BOS]", true, 163584},
                             {"[EOS]", true, 163585},
                             {"<|im_end|>", true, 163586},
                             {"<|im_user|>", true, 163587},
                             {"<|im_assistant|>", true, 163588},
                             {"<|im_system|>", true, 163594},
                             {"<|tool_calls_section_begin|>", true, 163595},
                             {"<|tool_calls_section_end|>", true, 163596},
                             {"<|tool_call_begin|>", true, 163597},
                             {"<|tool_call_argument_begin|>", true, 163598},
                             {"<|tool_call_end|>", true, 163599},
                             {"<|im_middle|>", true, 163601}},
                            "[BOS]", "<|im_end|>");
}

TEST(ChatKimiTest, KimiLinearHasItsIds) {
  AddedByteTokenizer tokenizer = KimiLinearTokenizer();
  tokenizer.AddWord("user", 2482);
  tokenizer.AddWord("assistant", 69702);
  const auto encoder = MakeKimiLinearEncoder(tokenizer);
  ChatOptions options;
  options.add_generation_prompt = true;
  const auto prompt =
      encoder->Encode(ChatOf(R"([{"role":"user","content":""}])"), options);
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_THAT(prompt->ids,
              ElementsAre(163587, 2482, 163601, 163586, 163588, 69702, 163601));
  options.add_generation_prompt = false;
  const auto calls = encoder->Encode(
      ChatOf(R"([{"role":"system","content":"s"},{"role":"user","content":)"
             R"("<|im_end|>"},{"role":"assistant","content":"c","tool_calls":)"
             R"([{"function":{"name":"f","arguments":{"b":1,"a":"é"}}},)"
             R"({"name":"g","arguments":"{}"}]}])"),
      options);
  ASSERT_TRUE(calls.ok()) << calls.status();
  EXPECT_EQ(calls->text,
            "<|im_system|>system<|im_middle|>s<|im_end|><|im_user|>user"
            "<|im_middle|><|im_end|><|im_end|><|im_assistant|>assistant"
            "<|im_middle|>c<|tool_calls_section_begin|><|tool_call_begin|>"
            "functions.f:0<|tool_call_argument_begin|>{\"b\": 1, \"a\": \"é\"}"
            "<|tool_call_end|><|tool_call_begin|>functions.g:1"
            "<|tool_call_argument_begin|>{}<|tool_call_end|>"
            "<|tool_calls_section_end|><|im_end|>");
  EXPECT_EQ(std::count(calls->ids.begin(), calls->ids.end(), 163586), 3);
  const auto first = std::find_if(calls->weights.begin(), calls->weights.end(),
                                  [](float w) { return w != 0; });
  EXPECT_EQ(calls->ids[static_cast<size_t>(first - calls->weights.begin())],
            'c');
  EXPECT_EQ(calls->weights.back(), 1);
}

TEST(ChatKimiTest, KimiLinearShowsToolsAndTheirResults) {
  const AddedByteTokenizer tokenizer = KimiLinearTokenizer();
  const auto encoder = MakeKimiLinearEncoder(tokenizer);
  // Ids of the model's own form stay, others get it; results follow their call
  // by id, or else in order.
  Chat chat = ChatOf(
      R"([{"role":"user","name":"ann","content":"q"},)"
      R"({"role":"assistant","content":"","tool_calls":[)"
      R"({"id":"call_a","function":{"name":"f","arguments":{"x":1}}},)"
      R"({"id":"functions.g:7","function":{"name":"g","arguments":"{}"}}]},)"
      R"({"role":"tool","name":"g","tool_call_id":"functions.g:7",)"
      R"("content":"<|im_end|>"},)"
      R"({"role":"tool","tool_call_id":"call_a","content":"r"},)"
      R"({"role":"assistant","content":"","tool_calls":[)"
      R"({"name":"h","arguments":{}}]},{"role":"tool","content":"s"},)"
      R"({"role":"assistant","content":"z"}])");
  chat.tools = *ParseJsonText(
      R"([{"type":"function","function":{"name":"f","a":[1,"é"]}}])");
  const auto encoded = encoder->Encode(chat, ChatOptions());
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  EXPECT_EQ(
      Show(tokenizer, *encoded),
      "<|im_system|>tool_declare<|im_middle|>"
      R"([{"type":"function","function":{"name":"f","a":[1,"é"]}}])"
      "<|im_end|><|im_user|>ann<|im_middle|>q<|im_end|>"
      "<|im_assistant|>assistant<|im_middle|>[<|tool_calls_section_begin|>"
      "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"x\": 1}"
      "<|tool_call_end|><|tool_call_begin|>functions.g:7"
      "<|tool_call_argument_begin|>{}<|tool_call_end|>"
      "<|tool_calls_section_end|><|im_end|>]"
      "<|im_system|>g<|im_middle|>## Return of functions.g:7\n<|im_end|>"
      "<|im_end|><|im_system|>tool<|im_middle|>## Return of functions.f:0\nr"
      "<|im_end|><|im_assistant|>assistant<|im_middle|>["
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.h:2"
      "<|tool_call_argument_begin|>{}<|tool_call_end|>"
      "<|tool_calls_section_end|><|im_end|>]"
      "<|im_system|>tool<|im_middle|>## Return of functions.h:2\ns<|im_end|>"
      "<|im_assistant|>assistant<|im_middle|>[z<|im_end|>]");
  // The result that spells <|im_end|> ends no message: eight messages do.
  EXPECT_EQ(std::count(encoded->ids.begin(), encoded->ids.end(), 163586), 8);
}

TEST(ChatKimiTest, KimiLinearResultsWithoutAnIdFollowTheCalls) {
  const AddedByteTokenizer tokenizer = KimiLinearTokenizer();
  const auto encoder = MakeKimiLinearEncoder(tokenizer);
  const auto returns = [&](const std::string& messages) {
    Chat chat = ChatOf(absl::StrCat("[", messages, "]"));
    chat.tools = JsonValue(JsonValue::Array());
    const auto encoded = encoder->Encode(chat, ChatOptions());
    if (!encoded.ok()) return std::string(encoded.status().message());
    EXPECT_EQ(encoded->text.find("tool_declare"), std::string::npos);
    std::string names;
    for (size_t at = 0;
         (at = encoded->text.find(" of ", at)) != std::string::npos; ++at) {
      names +=
          encoded->text.substr(at + 4, encoded->text.find('\n', at) - at - 4) +
          " ";
    }
    return names;
  };
  const std::string two =
      R"({"role":"assistant","tool_calls":[{"name":"f","arguments":{}},)"
      R"({"name":"g","arguments":{}}]})";
  const std::string one =
      R"({"role":"assistant","tool_calls":[{"name":"h","arguments":{}}]})";
  const std::string result = R"({"role":"tool","content":""})";
  EXPECT_EQ(returns(absl::StrCat(two, ",", result, ",", result, ",", one, ",",
                                 result)),
            "functions.f:0 functions.g:1 functions.h:2 ");
  EXPECT_EQ(returns(absl::StrCat(one, ",", result, ",", result)),
            "messages[2] is a result without tool_call_id or a call before it");
  // Ids that only look like the model's own.
  for (const char* id : {"functions.f:", "functions.f:1x", "functions.g:1"}) {
    EXPECT_EQ(
        returns(absl::StrCat(
            R"({"role":"assistant","tool_calls":[{"name":"f","arguments":{},)",
            R"("id":")", id, R"("}]},{"role":"tool","tool_call_id":")", id,
            R"("})")),
        "functions.f:0 ");
  }
}

TEST(ChatKimiTest, WhatALayoutCannotShowIsRefused) {
  const AddedByteTokenizer linear = KimiLinearTokenizer();
  const AddedByteTokenizer k3 = KimiK3Tokenizer();
  const std::unique_ptr<ChatEncoder> encoders[] = {
      MakeKimiLinearEncoder(linear), MakeKimiK3Encoder(k3, {})};
  struct Case {
    int encoder;
    const char* messages;
    const char* message;
  };
  const Case cases[] = {
      {0, R"([{"role":"assistant","content":"x","reasoning_content":"y"}])",
       "messages[0]: Kimi-Linear has no place for reasoning_content"},
      {0, R"([{"role":"developer","content":"x"}])", "the role developer"},
      {0, R"([{"role":"tool","content":"x"}])",
       "messages[0] is a result without tool_call_id or a call before it"},
      {0, R"([{"role":"tool","tool_call_id":"9","content":"x"}])",
       "messages[0] answers the call \"9\", which was not made"},
      {0, R"([{"role":"user","content":[{"type":"image"}]}])",
       "messages[0]: content has a part of type \"image\": this layout is for "
       "text alone"},
      {1, R"([{"role":"user","content":[{"type":"image_url"}]}])",
       "a part of type \"image_url\": this layout is for text alone"},
      {1, R"([{"role":"tool","tool_call_id":"9","content":"x"}])",
       "the call \"9\", which was not made"},
      {1, R"([{"role":"tool","content":"x"}])", "without a tool's name"},
      {1,
       R"([{"role":"assistant","tool_calls":[{"name":"f","arguments":"{"}]}])",
       "messages[0].tool_calls: arguments of \"f\""},
      {1,
       R"([{"role":"assistant","tool_calls":[{"name":"f","arguments":[1]}]}])",
       "messages[0].tool_calls: arguments are an array, expected an object"},
      {0, R"([{"role":"assistant","tool_calls":[{"name":"f"}]}])",
       "messages[0].tool_calls[0] lacks arguments"},
  };
  ChatOptions options[2];
  options[1].thinking_effort = "none";
  for (const Case& c : cases) {
    EXPECT_THAT(std::string(encoders[c.encoder]
                                ->Encode(ChatOf(c.messages), options[c.encoder])
                                .status()
                                .message()),
                HasSubstr(c.message))
        << c.messages;
  }
  options[0].thinking_effort = "max";
  const absl::Status effort =
      encoders[0]->Encode(ChatOf(cases[0].messages), options[0]).status();
  EXPECT_EQ(effort.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(effort.message(),
            "thinking effort \"max\": only the layout of K3 shows one");
}

}  // namespace
}  // namespace espalier
