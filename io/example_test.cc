#include "espalier/io/example.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// What the record became, in one line.
std::string Read(absl::string_view record, const ExampleFields& fields = {}) {
  const auto example = ParseExample(record, fields, "f.jsonl:7");
  if (!example.ok()) return std::string(example.status().message());
  switch (example->kind) {
    case Example::Kind::kText:
      return absl::StrCat("text ", example->text);
    case Example::Kind::kPromptCompletion:
      return absl::StrCat("prompt ", example->prompt, " completion ",
                          example->completion);
    case Example::Kind::kChat:
      break;
  }
  std::string text = absl::StrCat("chat ", *WriteJson(example->messages, 0));
  for (const JsonValue* more : {&example->tools, &example->request}) {
    if (!more->is_null()) absl::StrAppend(&text, " ", *WriteJson(*more, 0));
  }
  return text;
}

TEST(ExampleTest, Text) {
  EXPECT_EQ(Read(R"({"text":"a\u2028b","meta":{"x":[1]}})"),
            "text a\xE2\x80\xA8"
            "b");
}

TEST(ExampleTest, PromptAndCompletion) {
  EXPECT_EQ(Read(R"({"prompt":"p","completion":"c"})"),
            "prompt p completion c");
  EXPECT_EQ(Read(R"({"question":"p","answer":"c","text":"t"})",
                 {"question", "answer"}),
            "prompt p completion c");
  EXPECT_EQ(Read(R"({"prompt":[{"role":"user","content":"p"}],)"
                 R"("completion":[{"role":"assistant","content":"c"}]})"),
            R"(chat [{"content":"p","role":"user"},)"
            R"({"content":"c","role":"assistant"}])");
}

TEST(ExampleTest, Messages) {
  EXPECT_EQ(Read(R"({"messages":[{"role":"user","content":null,"x":1}],)"
                 R"("tools":"[{\"name\":\"f\"}]"})"),
            R"(chat [{"content":null,"role":"user","x":1}] [{"name":"f"}])");
  EXPECT_EQ(Read(R"({"messages":[{"role":"user","content":"a"}],"tools":[]})"),
            R"(chat [{"content":"a","role":"user"}])");
  // Of a chat in any shape.
  const std::string request =
      R"("tool_choice":"none","thinking_effort":null,"stream":true,)"
      R"("response_format":{"type":"text"},)";
  for (const char* chat :
       {R"("messages":[{"role":"user","content":"a"}]})",
        R"("conversations":[{"from":"user","value":"a"}]})",
        R"("prompt":[{"role":"user","content":"a"}],"completion":[]})"}) {
    EXPECT_EQ(Read(absl::StrCat("{", request, chat)),
              R"(chat [{"content":"a","role":"user"}] {"response_format":)"
              R"({"type":"text"},"tool_choice":"none"})");
  }
}

TEST(ExampleTest, Conversations) {
  EXPECT_EQ(
      Read(
          R"({"system":"s","conversations":[{"from":"human","value":"a"},)"
          R"({"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{}}"},)"
          R"({"from":"observation","value":"o"},{"from":"gpt","value":"b"}]})"),
      R"(chat [{"content":"s","role":"system"},{"content":"a","role":"user"},)"
      R"({"content":"","role":"assistant","tool_calls":[{"function":)"
      R"({"arguments":{},"name":"f"},"type":"function"}]},)"
      R"({"content":"o","role":"tool"},{"content":"b","role":"assistant"}])");
}

TEST(ExampleTest, Instruction) {
  EXPECT_EQ(Read(R"({"instruction":"i","input":"n","output":"o",)"
                 R"("history":[["u","v"]]})"),
            R"(chat [{"content":"u","role":"user"},)"
            R"({"content":"v","role":"assistant"},)"
            R"({"content":"i\n\nn","role":"user"},)"
            R"({"content":"o","role":"assistant"}])");
  EXPECT_EQ(Read(R"({"instruction":"i","input":"","output":"o"})"),
            R"(chat [{"content":"i","role":"user"},)"
            R"({"content":"o","role":"assistant"}])");
}

TEST(ExampleTest, ErrorsNameThePlaceAndTheMember) {
  for (const auto& [record, what] :
       std::vector<std::pair<std::string, std::string>>{
           {"{\"text\":", "invalid JSON"},
           {"[1]", "is an array, expected an object"},
           {"{}", "it has no member"},
           {"{\"question\":\"q\",\"answer\":\"a\"}",
            "it has question, answer, expected messages"},
           {"{\"text\":1}", "text is an integer, expected a string"},
           {"{\"text\":\"a\",\"text\":\"b\"}", "stands twice"},
           {"{\"prompt\":\"a\",\"completion\":2}",
            "completion is an integer, expected a string"},
           {"{\"messages\":{}}", "messages is an object"},
           {"{\"messages\":[]}", "messages has no message"},
           {"{\"messages\":[{\"content\":\"a\"}]}",
            "messages[0].role is missing"},
           {"{\"messages\":[{\"role\":\"user\"}],\"tools\":\"[\"}", "tools: "},
           {"{\"messages\":[{\"role\":\"user\"}],\"tools\":3}",
            "tools is an integer"},
           {"{\"conversations\":[{\"from\":\"bot\",\"value\":\"a\"}]}",
            "conversations[0].from is \"bot\", expected one of human"},
           {"{\"conversations\":[{\"from\":\"gpt\"}]}",
            "conversations[0].value is missing"},
           {"{\"conversations\":[{\"from\":\"function_call\",\"value\":\"f\"}]"
            "}",
            "conversations[0].value of a function_call"},
           {"{\"instruction\":\"a\",\"output\":\"b\",\"history\":[[\"u\"]]}",
            "history is no array of"}}) {
    EXPECT_THAT(Read(record), AllOf(StartsWith("f.jsonl:7: "), HasSubstr(what)))
        << record;
  }
  EXPECT_THAT(Read("{}", {"a", ""}), HasSubstr("go together"));
  EXPECT_THAT(Read("{\"a\":\"x\"}", {"a", "b"}), HasSubstr("b is missing"));
}

}  // namespace
}  // namespace espalier
