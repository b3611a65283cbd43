#include <algorithm>
#include <memory>
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

AddedByteTokenizer KimiK3Tokenizer() {
  return AddedByteTokenizer({{"<|end_of_msg|>", true, 163586},
                             {"<|open|>", true, 163587},
                             {"<|close|>", true, 163588},
                             {"<|sep|>", true, 163589}},
                            "[BOS]", "<|end_of_msg|>");
}

// O, C, P, E for the control tokens.
std::string Short(std::string text) {
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
  return text;
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
  for (const Case& c : cases) {
    EXPECT_THAT(std::string(encoders[c.encoder]
                                ->Encode(ChatOf(c.messages), ChatOptions())
                                .status()
                                .message()),
                HasSubstr(c.message))
        << c.messages;
  }
}

TEST(ChatKimiTest, K3IsEncodedPieceByPiece) {
  AddedByteTokenizer tokenizer = KimiK3Tokenizer();
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
  EXPECT_EQ(
      Short(encoded->text),
      "O message role=\"user\" name=\"a&quot;&amp;b\" PO C message PE\n"
      "O message role=\"assistant\" PO think PC think PO response Pr"
      "C response PO tools PO call tool=\"f\" index=\"1\" P"
      "O argument key=\"s\" type=\"string\" PxC argument P"
      "O argument key=\"n\" type=\"number\" P2.5C argument P"
      "O argument key=\"o\" type=\"object\" P{\"z\": 1, \"a\": []}"
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
}

// The form of the released file, with texts of our own.
constexpr char kEncoding[] = R"(
def _other(tools):
    return f"no {_json_compact(tools)}"

def _render_tool_declare(tools, *, dynamic=False) -> list:
    """Says "which" tools there are."""
    if dynamic:  # {later}
        body = (
            "More \"tools\".\n"
            f"{_json_compact(tools)}\n"
            '{x}'
        )
    else:
        body = (
            f"All: {{\n{_json_compact(tools)}"
            "\nend"
        )
    return _text(body)

def build(tools):
    return _render_tool_declare(tools)
)";

TEST(ChatKimiTest, K3DeclaresToolsWithTheCheckpointsTexts) {
  const AddedByteTokenizer tokenizer = KimiK3Tokenizer();
  Chat chat = ChatOf(R"([{"role":"user","content":"q"},)"
                     R"({"role":"system","tools":[{"b":1.0,"a":null}]}])");
  chat.tools = *ParseJsonText(R"([{"z":{"d":1,"c":"é"},"a":[true]}])");
  KimiK3Options options;
  EXPECT_THAT(std::string(MakeKimiK3Encoder(tokenizer, options)
                              ->Encode(chat, ChatOptions())
                              .status()
                              .message()),
              HasSubstr("encoding_k3.py, which its folder lacks"));
  ASSERT_TRUE(ReadKimiK3Texts(kEncoding, "e.py", &options).ok());
  const auto encoded =
      MakeKimiK3Encoder(tokenizer, options)->Encode(chat, ChatOptions());
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  EXPECT_EQ(Short(encoded->text),
            "O message role=\"system\" type=\"tool-declare\" PAll: {\n"
            "[{\"a\":[true],\"z\":{\"c\":\"é\",\"d\":1}}]\nendC message PE\n"
            "O message role=\"user\" PqC message PE\n"
            "O message role=\"system\" type=\"tool-declare\" PMore \"tools\".\n"
            "[{\"a\":null,\"b\":1.0}]\n{x}C message PE\n");
  EXPECT_EQ(encoded->messages[0], -1);
  EXPECT_EQ(encoded->messages.back(), 1);
}

TEST(ChatKimiTest, OtherSourcesThanTheReleasedOnesAreRefused) {
  const std::string good = kEncoding;
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string source = good;
    const size_t at = source.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    source.replace(at, from.size(), to);
    KimiK3Options options;
    const absl::Status status = ReadKimiK3Texts(source, "e.py", &options);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(with("def _render_tool_declare", "def _declare"),
              HasSubstr("e.py: has 0 texts that declare tools"));
  EXPECT_THAT(with("if dynamic:", "if more:"), HasSubstr("has 2 texts"));
  // Texts that something is done to.
  EXPECT_THAT(with("end\"\n        )", "end\"\n        ).strip()"),
              HasSubstr("has 1 texts"));
  EXPECT_THAT(with("end\"\n        )", "end\" + more\n        )"),
              HasSubstr("has 1 texts"));
  EXPECT_THAT(with("{x}'\n", "{x}' % more\n"), HasSubstr("has 1 texts"));
  EXPECT_THAT(
      with("body = (\n            \"More", "body = f(\n            \"More"),
      HasSubstr("has 1 texts"));
  EXPECT_THAT(with("f\"{_json", "rf\"{_json"), HasSubstr("a literal"));
  EXPECT_THAT(with("\\nend\"", "\\nend"), HasSubstr("without an end"));
  EXPECT_THAT(with("\\nend", "\\u00e9"), HasSubstr("an escape"));
  EXPECT_THAT(with("(tools)}\\n", "(tools)!r}\\n"), HasSubstr("a field"));
}

}  // namespace
}  // namespace espalier
