#include "espalier/io/internal/chat_spans.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "espalier/io/internal/chat_test_util.h"

namespace espalier::internal {
namespace {

struct Found {
  size_t num_spans = 0;
  int num_prompts = 0;  // how often the template was asked for its prompt
};

// The spans of `num_turns` questions and answers, each answer shown behind
// `lead`, by a template that prompts with `tail`.
Found SpansOf(int num_turns, const std::string& lead, const std::string& tail) {
  const auto parsed = JinjaTemplate::Parse(
      "{% for m in messages %}{% if m.role == 'assistant' %}" + lead +
          "{% else %}<|user|>{% endif %}{{ m.content }}<|im_end|>{% endfor %}",
      "t");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  Chat chat;
  JsonValue::Array messages;
  for (int i = 0; i < num_turns; ++i) {
    for (const char* role : {"user", "assistant"}) {
      JsonValue message;
      message.Set("role", role);
      message.Set("content", "a");
      messages.push_back(std::move(message));
    }
  }
  chat.messages = std::move(messages);
  const auto checked = CheckMessages(chat);
  EXPECT_TRUE(checked.ok()) << checked.status();
  const std::vector<JinjaVariable> variables = {{"messages",
                                                 &checked->messages,
                                                 JinjaVariable::Origin::kItems,
                                                 {"role"}}};
  const auto output = parsed->Render(variables);
  EXPECT_TRUE(output.ok()) << output.status();
  const test::AddedByteTokenizer tokenizer = test::MakeTokenizer();
  AddedTokenMatcher matcher;
  for (const AddedToken& token : tokenizer.added_tokens()) {
    matcher.Add(token, token.content);
  }
  Found found;
  const auto spans = FindSpans(*output, FindControls(*output, matcher),
                               *checked, matcher, {*tokenizer.eos_id()},
                               [&](int32_t) -> absl::StatusOr<std::string> {
                                 ++found.num_prompts;
                                 return tail;
                               });
  EXPECT_TRUE(spans.ok()) << spans.status();
  if (spans.ok()) found.num_spans = spans->size();
  return found;
}

// Asking renders the chat anew: once for each turn would take quadratic time.
TEST(ChatSpansTest, ManyTurnsAskForFewPrompts) {
  for (const auto& [lead, tail] :
       std::vector<std::pair<std::string, std::string>>{
           {"<|assistant|>", "<|assistant|>"},
           {"Answer: ", "Answer: "},
           // The prompt opens what turns gone by leave out.
           {"<|assistant|>", "<|assistant|><think>"}}) {
    const Found found = SpansOf(2000, lead, tail);
    EXPECT_EQ(found.num_spans, 2000u) << tail;
    EXPECT_GE(found.num_prompts, 1) << tail;
    EXPECT_LE(found.num_prompts, 3) << tail;
  }
}

}  // namespace
}  // namespace espalier::internal
