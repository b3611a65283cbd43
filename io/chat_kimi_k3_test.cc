#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
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
  options.thinking_effort = "none";
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

TEST(ChatKimiK3Test, ResultsAndArgumentsHaveSeveralSpellings) {
  const AddedByteTokenizer tokenizer = KimiK3Tokenizer();
  KimiK3Options k3;
  ChatOptions options;
  options.thinking_effort = "none";
  const auto text = [&](const std::string& messages) {
    const auto encoded =
        MakeKimiK3Encoder(tokenizer, k3)
            ->Encode(ChatOf(absl::StrCat("[", messages, "]")), options);
    return encoded.ok() ? Short(encoded->text)
                        : std::string(encoded.status().message());
  };
  const std::string calls =
      R"({"role":"assistant","reasoning":"why","tool_calls":[)"
      R"({"id":"1","name":"f","arguments":null},)"
      R"({"id":"2","name":"g","arguments":" \n"}]})";
  const std::string shown =
      "O message role=\"assistant\" PO think PwhyC think P"
      "O response PC response PO tools PO call tool=\"f\" index=\"1\" PC call P"
      "O call tool=\"g\" index=\"2\" PC call PC tools PC message PE\n";
  const auto result = [](absl::string_view tool, int index,
                         absl::string_view content) {
    return absl::StrCat("O message role=\"tool\" tool=\"", tool, "\" index=\"",
                        index, "\" P", content, "C message PE\n");
  };
  EXPECT_EQ(text(calls), shown);
  // By id under either name, else in order.
  EXPECT_EQ(text(calls + R"(,{"role":"tool","id":"2","content":"b"},)"
                         R"({"role":"tool","tool_call_id":"1","content":"a"})"),
            shown + result("f", 1, "a") + result("g", 2, "b"));
  EXPECT_EQ(text(calls + R"(,{"role":"tool","content":"a"},)"
                         R"({"role":"tool","content":"b"},)"
                         R"({"role":"tool","tool":"h","name":"i"},)"
                         R"({"role":"tool","name":"i"})"),
            shown + result("f", 1, "a") + result("g", 2, "b") +
                result("h", 3, "") + result("i", 4, ""));
  // The calls of an earlier message do not count.
  const std::string answer =
      R"(,{"role":"assistant","content":"","reasoning_content":" "})";
  EXPECT_EQ(text(calls + answer + R"(,{"role":"tool","tool_call_id":"1"})"),
            "messages[2] answers the call \"1\", which was not made");
  EXPECT_EQ(text(calls + answer + R"(,{"role":"tool","content":"a"})"),
            "messages[2] is a tool result without a tool's name");
  EXPECT_EQ(text(calls + answer),
            shown +
                "O message role=\"assistant\" PO think PC think P"
                "O response PC response PC message PE\n");
  k3.thinking = false;
  EXPECT_EQ(text(calls),
            "messages[0]: reasoning_content in a chat without thinking");
  EXPECT_EQ(text(answer.substr(1)),
            "O message role=\"assistant\" PO response PC response P"
            "C message PE\n");
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

def build_chat_segments(
    messages,
    **kwargs,
) -> list:
    # The model's "own" order.
    if tools:
        segments.extend(_render_tool_declare(tools))
    thinking_effort = kwargs.get("thinking_effort")
    if thinking and thinking_effort is not None:
        assert thinking_effort in _EFFORTS, (
            f"Not {thinking_effort!r}; "
            f"but {sorted(_EFFORTS)}."
        )
        segments.extend(
            _internal_system_message(
                "thinking-effort",
                "\nThink, as hard as\n"
                f"`{thinking_effort}`. ",
            )
        )
    tool_choice = kwargs.get("tool_choice")
    if tool_choice == "required":
        segments.extend(
            _internal_system_message(
                "tool-choice",
                "Call "
                "some.\n",
            )
        )
    elif tool_choice == "none":
        segments.extend(_internal_system_message("tool-choice", "Call none."))
    if rf_type == "json_object":
        segments.extend(_internal_system_message("response-format", "JSON."))
    elif rf_type == "json_schema":
        schema = _json_compact(kwargs.get("response_schema"))
        segments.extend(
            _internal_system_message(
                "response-format",
                f"JSON of\n{schema}\nalone",
            )
        )
    return segments

def _last():
    return _internal_system_message("tool-choice", "Other.")
)";

TEST(ChatKimiK3Test, DeclaresToolsWithTheCheckpointsTexts) {
  const AddedByteTokenizer tokenizer = KimiK3Tokenizer();
  Chat chat = ChatOf(R"([{"role":"user","content":"q"},)"
                     R"({"role":"system","tools":[{"b":1.0,"a":null}]}])");
  chat.tools = *ParseJsonText(R"([{"z":{"d":1,"c":"é"},"a":[true]}])");
  KimiK3Options options;
  ChatOptions quiet;
  quiet.thinking_effort = "none";
  EXPECT_THAT(std::string(MakeKimiK3Encoder(tokenizer, options)
                              ->Encode(chat, quiet)
                              .status()
                              .message()),
              HasSubstr("encoding_k3.py, which its folder lacks"));
  ASSERT_TRUE(ReadKimiK3Texts(kEncoding, "e.py", &options).ok());
  const auto encoded =
      MakeKimiK3Encoder(tokenizer, options)->Encode(chat, quiet);
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
  EXPECT_THAT(with("(tools)}\\n", "({tools})}\\n"), HasSubstr("a field"));
  EXPECT_THAT(with("(tools)}\\n", "(tools)!r}\\n"), HasSubstr("has 1 texts"));
  EXPECT_THAT(
      with("def build_chat_segments", "def build"),
      HasSubstr("e.py: has 0 messages of type thinking-effort, expected one "
                "in build_chat_segments, _internal_system_message(\"thinking-"
                "effort\", TEXT around {thinking_effort})"));
  EXPECT_THAT(with("`{thinking_effort}`", "`{thinking_effort.upper()}`"),
              HasSubstr("has 0 messages of type thinking-effort"));
  EXPECT_THAT(with("thinking_effort}`. \"", "thinking_effort}`. \" + more"),
              HasSubstr("has 0 messages of type thinking-effort"));
  EXPECT_THAT(with("== \"required\"", "!= \"required\""),
              HasSubstr("has 0 messages of type tool-choice for required"));
  EXPECT_THAT(with("(\"tool-choice\", \"Call", "(\"tool-choice\", s(\"Call"),
              HasSubstr("has 0 messages of type tool-choice for none"));
  EXPECT_THAT(
      with("message(\"tool-choice\", \"Call", "other(\"tool-choice\", \"Call"),
      HasSubstr("has 0 messages of type tool-choice for none"));
  EXPECT_THAT(with("== \"none\"", "== \"required\""),
              HasSubstr("has 2 messages of type tool-choice for required"));
  EXPECT_THAT(with("\"JSON.\"", "f\"{schema}\""),
              HasSubstr("response-format for json_object"));
  EXPECT_THAT(with("JSON of\\n{schema}", "JSON of\\n{other}"),
              HasSubstr("response-format for json_schema"));
}

// What a chat asks for, in the order of the specification: tools, effort, the
// messages, tool choice and response format, the answer.
class ChatKimiK3RequestTest : public ::testing::Test {
 protected:
  ChatKimiK3RequestTest() {
    EXPECT_TRUE(ReadKimiK3Texts(kEncoding, "e.py", &k3_).ok());
  }
  std::string Text(absl::string_view messages, absl::string_view request) {
    Chat chat = ChatOf(messages);
    const auto parsed = ParseJsonText(request);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    chat.request = *parsed;
    chat.tools = tools_;
    const auto encoded =
        MakeKimiK3Encoder(tokenizer_, k3_)->Encode(chat, options_);
    if (!encoded.ok()) return std::string(encoded.status().message());
    encoded_ = *encoded;
    return Short(encoded->text);
  }

  const AddedByteTokenizer tokenizer_ = KimiK3Tokenizer();
  KimiK3Options k3_;
  ChatOptions options_;
  JsonValue tools_;
  EncodedChat encoded_;
};

constexpr char kAsked[] = R"([{"role":"user","content":"q"}])";
constexpr char kAnswered[] = R"([{"role":"user","content":"q"},)"
                             R"({"role":"assistant","content":"r"}])";
constexpr char kUser[] = "O message role=\"user\" PqC message PE\n";
constexpr char kAssistant[] =
    "O message role=\"assistant\" PO think PC think PO response PrC response P"
    "C message PE\n";

std::string System(absl::string_view type, absl::string_view text) {
  return absl::StrCat("O message role=\"system\" type=\"", type, "\" P", text,
                      "C message PE\n");
}

TEST_F(ChatKimiK3RequestTest, TheEffortStandsBehindTheTools) {
  const auto effort = [](absl::string_view name) {
    return System("thinking-effort",
                  absl::StrCat("Think, as hard as\n`", name, "`."));
  };
  // As the checkpoint's tokenizer has it, most where none is named.
  EXPECT_EQ(Text(kAsked, "null"), effort("max") + kUser);
  EXPECT_EQ(encoded_.messages[0], -1);
  for (const char* name : {"low", "medium", "high", "max"}) {
    options_.thinking_effort = name;
    EXPECT_EQ(Text(kAsked, "null"), effort(name) + kUser);
  }
  EXPECT_EQ(Text(kAsked, R"({"thinking_effort":"low"})"),
            effort("low") + kUser);
  EXPECT_EQ(Text(kAsked, R"({"thinking_effort":"none"})"), kUser);
  options_.thinking_effort = "none";
  EXPECT_EQ(Text(kAsked, R"({"thinking_effort":null})"), kUser);
  tools_ = *ParseJsonText(R"([{"b":1,"a":[]}])");
  EXPECT_EQ(Text(kAsked, R"({"thinking_effort":"high"})"),
            System("tool-declare", "All: {\n[{\"a\":[],\"b\":1}]\nend") +
                effort("high") + kUser);
  k3_.thinking = false;
  tools_ = JsonValue();
  EXPECT_EQ(Text(kAsked, R"({"thinking_effort":"high"})"), kUser);
  EXPECT_EQ(Text(kAsked, R"({"thinking_effort":"hard"})"),
            "thinking_effort is \"hard\", expected one of low, medium, high, "
            "max, none");
  EXPECT_EQ(Text(kAsked, R"({"thinking_effort":3})"),
            "thinking_effort is an integer, expected a string");
}

TEST_F(ChatKimiK3RequestTest, WhatIsAskedOfTheAnswerStandsBeforeIt) {
  options_.thinking_effort = "none";
  const std::string some = System("tool-choice", "Call some.");
  const std::string none = System("tool-choice", "Call none.");
  EXPECT_EQ(Text(kAsked, R"({"tool_choice":"required"})"), kUser + some);
  EXPECT_EQ(Text(kAsked, R"({"tool_choice":"none"})"), kUser + none);
  EXPECT_EQ(Text(kAsked, R"({"tool_choice":"auto"})"), kUser);
  EXPECT_EQ(Text(kAnswered, R"({"tool_choice":"none"})"),
            kUser + none + kAssistant);
  EXPECT_EQ(encoded_.messages[static_cast<size_t>(std::count(
                encoded_.messages.begin(), encoded_.messages.end(), 0))],
            -1);
  const std::string object = System("response-format", "JSON.");
  for (const char* format : {R"("json_object")", R"({"type":"json_object"})"}) {
    EXPECT_EQ(Text(kAnswered, absl::StrCat(R"({"response_format":)", format,
                                           R"(,"tool_choice":"required"})")),
              absl::StrCat(kUser, some, object, kAssistant));
  }
  const std::string schema =
      System("response-format", "JSON of\n{\"a\":{\"c\":1,\"d\":2}}\nalone");
  for (const char* json :
       {R"({"schema":{"a":{"d":2,"c":1}},"name":"n"})",
        R"({"json_schema":{"a":{"d":2,"c":1}}})", R"({"a":{"d":2,"c":1}})"}) {
    EXPECT_EQ(Text(kAsked,
                   absl::StrCat(R"({"response_format":{"type":"json_schema",)",
                                R"("json_schema":)", json, "}}")),
              kUser + schema);
  }
  EXPECT_EQ(Text(kAsked, R"({"response_format":{"type":"text"}})"), kUser);
  options_.add_generation_prompt = true;
  EXPECT_EQ(Text(kAnswered, R"({"tool_choice":"none"})"),
            absl::StrCat(kUser, kAssistant, none,
                         "O message role=\"assistant\" PO think P"));
}

TEST_F(ChatKimiK3RequestTest, WhatCannotBeShownIsRefused) {
  options_.thinking_effort = "none";
  EXPECT_EQ(Text(kAsked, R"({"tool_choice":"some"})"),
            "tool_choice is \"some\", expected required, none or auto");
  EXPECT_EQ(Text(kAsked, R"({"tool_choice":{"type":"function"}})"),
            "tool_choice is an object, expected a string");
  EXPECT_EQ(Text(kAsked, R"({"response_format":{"type":"json_schema"}})"),
            "response_format has the type \"json_schema\" and no json_schema, "
            "expected text, json_object or json_schema");
  EXPECT_EQ(Text(kAsked, R"({"response_format":{"type":"xml"}})"),
            "response_format has the type \"xml\" and no json_schema, expected "
            "text, json_object or json_schema");
  k3_ = {};
  options_.thinking_effort = "";
  EXPECT_THAT(Text(kAsked, "null"),
              HasSubstr("a thinking effort other than \"none\": K3 shows this "
                        "with texts of the checkpoint's own encoding_k3.py, "
                        "which its folder lacks: put it there"));
  options_.thinking_effort = "none";
  for (const char* request :
       {R"({"tool_choice":"required"})", R"({"tool_choice":"none"})",
        R"({"response_format":"json_object"})",
        R"({"response_format":{"type":"json_schema","json_schema":{}}})"}) {
    EXPECT_THAT(Text(kAsked, request), HasSubstr(": K3 shows this with texts"));
  }
}

}  // namespace
}  // namespace espalier
