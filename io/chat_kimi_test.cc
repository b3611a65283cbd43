#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/chat.h"
#include "espalier/io/internal/chat_test_util.h"

namespace espalier {
namespace {

using test::AddedByteTokenizer;
using test::ChatOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ChatKimiTest, KimiLinearHasItsIds) {
  AddedByteTokenizer tokenizer({{"[BOS]", true, 163584},
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
  for (const char* refused :
       {R"([{"role":"tool","content":"x"}])",
        R"([{"role":"assistant","content":"x","reasoning_content":"y"}])",
        R"([{"role":"user","content":[{"type":"image"}]}])"}) {
    EXPECT_EQ(encoder->Encode(ChatOf(refused), options).status().code(),
              absl::StatusCode::kUnimplemented)
        << refused;
  }
}

TEST(ChatKimiTest, K3IsEncodedPieceByPiece) {
  AddedByteTokenizer tokenizer({{"<|end_of_msg|>", true, 163586},
                                {"<|open|>", true, 163587},
                                {"<|close|>", true, 163588},
                                {"<|sep|>", true, 163589}},
                               "[BOS]", "<|end_of_msg|>");
  tokenizer.AddWord(" role", 500);
  tokenizer.AddWord("=\"", 501);
  tokenizer.AddWord("message", 502);
  const auto encoder = MakeKimiK3Encoder(tokenizer, {});
  ChatOptions options;
  const auto encoded = encoder->Encode(
      ChatOf(R"([{"role":"user","name":"a\"&b","content":"<|open|>"},)"
             R"({"role":"assistant","content":"r","tool_calls":[)"
             R"({"id":"1","function":{"name":"f","arguments":{"s":"x","n":2.5,)"
             R"("o":{"z":1,"a":[]},"b":true,"e":null}}},)"
             R"({"id":"2","function":{"name":"g","arguments":"{}"}}]},)"
             R"({"role":"tool","tool_call_id":"2","content":"two"},)"
             R"({"role":"tool","tool_call_id":"1","content":"one"}])"),
      options);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  std::string text = encoded->text;
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{
           {"<|open|>", "O "},
           {"<|close|>", "C "},
           {"<|sep|>", " P"},
           {"<|end_of_msg|>", "E\n"}}) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;) {
      text.replace(at, from.size(), to);
    }
  }
  EXPECT_EQ(
      text,
      "O message role=\"user\" name=\"a&quot;&amp;b\" PO C message PE\n"
      "O message role=\"assistant\" PO think PC think PO response Pr"
      "C response PO tools PO call tool=\"f\" index=\"1\" P"
      "O argument key=\"s\" type=\"string\" PxC argument P"
      "O argument key=\"n\" type=\"number\" P2.5C argument P"
      "O argument key=\"o\" type=\"object\" P{\"a\":[],\"z\":1}"
      "C argument PO argument key=\"b\" type=\"boolean\" Ptrue"
      "C argument PO argument key=\"e\" type=\"null\" PnullC argument P"
      "C call PO call tool=\"g\" index=\"2\" PC call PC tools P"
      "C message PE\n"
      "O message role=\"tool\" tool=\"f\" index=\"1\" PoneC message PE\n"
      "O message role=\"tool\" tool=\"g\" index=\"2\" PtwoC message PE\n");
  EXPECT_THAT(
      std::vector<int32_t>(encoded->ids.begin(), encoded->ids.begin() + 4),
      ElementsAre(163587, 502, 500, 501));
  // The user's <|open|> is text: as many as the layout has, no more.
  EXPECT_EQ(std::count(encoded->ids.begin(), encoded->ids.end(), 163587), 14);
  std::string trained;
  for (size_t i = 0; i < encoded->ids.size(); ++i) {
    if (encoded->weights[i] != 0)
      trained += tokenizer.Decode({encoded->ids[i]});
  }
  EXPECT_TRUE(absl::StartsWith(trained, "<|open|>think<|sep|>")) << trained;
  EXPECT_TRUE(absl::EndsWith(trained, "<|close|>message<|sep|><|end_of_msg|>"));
  EXPECT_EQ(trained.find("one"), std::string::npos);

  KimiK3Options plain;
  plain.thinking = false;
  options.add_generation_prompt = true;
  const auto without =
      MakeKimiK3Encoder(tokenizer, plain)
          ->Encode(ChatOf(R"([{"role":"user","content":"q"}])"), options);
  EXPECT_TRUE(absl::EndsWith(
      without->text,
      "<|open|>message role=\"assistant\"<|sep|><|open|>response<|sep|>"));
  Chat tools = ChatOf(R"([{"role":"user","content":"q"}])");
  tools.tools = JsonValue::Array{JsonValue("x")};
  EXPECT_THAT(std::string(encoder->Encode(tools, options).status().message()),
              HasSubstr("K3 declares them with texts"));
  EXPECT_THAT(
      std::string(encoder
                      ->Encode(ChatOf(R"([{"role":"tool","tool_call_id":"9",)"
                                      R"("content":"x"}])"),
                               options)
                      .status()
                      .message()),
      HasSubstr("the call \"9\", which was not made"));
}

}  // namespace
}  // namespace espalier
