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
using test::KimiK3Tokenizer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

TEST(ChatKimiK3Test, IsEncodedPieceByPiece) {
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

TEST(ChatKimiK3Test, DeclaresToolsWithTheCheckpointsTexts) {
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

TEST(ChatKimiK3Test, OtherSourcesThanTheReleasedOnesAreRefused) {
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
