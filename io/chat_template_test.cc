#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/chat.h"
#include "espalier/io/internal/chat_test_util.h"
#include "espalier/io/internal/test_util.h"

namespace espalier {
namespace {

using test::ChatOf;
using test::ChatTest;
using test::kChatMl;
using test::MakeTokenizer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The next role's marker ends a turn.
constexpr char kGlm[] =
    "[gMASK]{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";

// Reasoning of turns gone by is left out, and the prompt opens it.
constexpr char kThinking[] =
    "{% set ns = namespace(last=0) %}{% for m in messages %}"
    "{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}"
    "{% endfor %}{% for m in messages %}{% set content = m.content %}"
    "{% set think = '' %}{% if '</think>' in content %}"
    "{% set think = content.split('</think>')[0].split('<think>')[-1] %}"
    "{% set content = content.split('</think>')[-1] %}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' and loop.index0 > ns.last %}"
    "{{ '<think>\n' + think + '\n</think>\n\n' }}{% endif %}"
    "{{ content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}"
    "{% endif %}";

constexpr char kTwoTurns[] =
    R"([{"role":"user","content":"a"},{"role":"assistant","content":"x"},)"
    R"({"role":"user","content":"b"},{"role":"assistant","content":"y"}])";

// Case D2: ChatML-like, GLM-like and with an end token that pads.
TEST_F(ChatTest, AnswersAndTheirEndsAreTrained) {
  EXPECT_EQ(Trained(kChatMl, kTwoTurns),
            "<s><|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
            "[x<|im_end|>]\n<|im_start|>user\nb<|im_end|>\n"
            "<|im_start|>assistant\n[y<|im_end|>]\n");
}

TEST_F(ChatTest, TheNextRolesMarkerEndsATurn) {
  tokenizer_ = MakeTokenizer("<pad>");
  // The end token of the tokenizer ends the last turn, also where it pads.
  EXPECT_EQ(Trained(kGlm, kTwoTurns),
            "[gMASK]<|user|>\na<|assistant|>[\nx<|user|>]\nb<|assistant|>"
            "[\ny<pad>]");
  tokenizer_ = MakeTokenizer("none");
  EXPECT_THAT(Trained(kGlm, kTwoTurns), HasSubstr("names no end token"));
}

TEST_F(ChatTest, EmptyAnswersAreTrainedToEnd) {
  EXPECT_EQ(Trained(kChatMl, R"([{"role":"user","content":""},)"
                             R"({"role":"assistant","content":""}])"),
            "<s><|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n"
            "[<|im_end|>]\n");
}

// Case D3.
TEST_F(ChatTest, HistoryThatIsRewrittenIsTrainedAsItIsShown) {
  const char* messages =
      R"([{"role":"user","content":"q"},)"
      R"({"role":"assistant","content":"<think>a</think>x"},)"
      R"({"role":"user","content":"r"},)"
      R"({"role":"assistant","content":"<think>b</think>y"}])";
  EXPECT_EQ(Trained(kThinking, messages),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
            "[x<|im_end|>]\n<|im_start|>user\nr<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n[b\n</think>\n\ny<|im_end|>]\n");
  const auto encoded = Encode(kThinking, messages);
  ASSERT_TRUE(encoded.ok());
  for (size_t i = 0; i < encoded->ids.size(); ++i) {
    if (encoded->weights[i] == 0) continue;
    ASSERT_GE(encoded->messages[i], 0);
    EXPECT_EQ(encoded->roles[static_cast<size_t>(encoded->messages[i])],
              "assistant");
  }
}

// Case D3: reasoning in a member of its own is shown and trained where the
// template shows it, and content with the closing tag alone gets no second
// block.
TEST_F(ChatTest, ReasoningContentIsTrainedWhereItIsShown) {
  const char* reasoning =
      "{% set ns = namespace(last=0) %}{% for m in messages %}"
      "{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}"
      "{% endfor %}{% for m in messages %}{% set content = m.content %}"
      "{% set think = '' %}{% if m.reasoning_content is string %}"
      "{% set think = m.reasoning_content %}{% elif '</think>' in content %}"
      "{% set think = content.split('</think>')[0].split('<think>')[-1] %}"
      "{% set content = content.split('</think>')[-1] %}{% endif %}"
      "<|im_start|>{{ m.role }}\n"
      "{% if m.role == 'assistant' and loop.index0 > ns.last %}"
      "<think>{{ think }}</think>{% endif %}{{ content }}<|im_end|>"
      "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
      "{% endif %}";
  EXPECT_EQ(
      Trained(reasoning,
              R"([{"role":"user","content":"q"},)"
              R"({"role":"assistant","content":"x","reasoning_content":"a"},)"
              R"({"role":"user","content":"r"},)"
              R"({"role":"assistant","content":"y","reasoning_content":"b"}])"),
      "<|im_start|>user\nq<|im_end|><|im_start|>assistant\n[x<|im_end|>]"
      "<|im_start|>user\nr<|im_end|><|im_start|>assistant\n"
      "[<think>b</think>y<|im_end|>]");
  EXPECT_EQ(
      Trained(reasoning, R"([{"role":"user","content":"r"},)"
                         R"({"role":"assistant","content":"b</think>y"}])"),
      "<|im_start|>user\nr<|im_end|><|im_start|>assistant\n"
      "[<think>b</think>y<|im_end|>]");
}

TEST_F(ChatTest, GenerationBlocksTellWhatIsTrained) {
  const char* blocks =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n"
      "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
      "{% endgeneration %}{% else %}{{ m.content }}{% endif %}<|im_end|>\n"
      "{% endfor %}";
  EXPECT_EQ(Trained(blocks, kTwoTurns),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
            "[x<|im_end|>]\n<|im_start|>user\nb<|im_end|>\n"
            "<|im_start|>assistant\n[y<|im_end|>]\n");
  // A block around a user's words is refused.
  EXPECT_THAT(Trained("{% for m in messages %}{% generation %}{{ m.content }}"
                      "{% endgeneration %}<|im_end|>{% endfor %}",
                      kTwoTurns),
              HasSubstr("a generation block shows no assistant message"));
  EXPECT_THAT(Trained("{% for m in messages %}{% if m.role == 'assistant' %}"
                      "{% generation %}{{ messages[loop.index0 - 1].content }}"
                      "{{ m.content }}<|im_end|>{% endgeneration %}{% endif %}"
                      "{% endfor %}",
                      kTwoTurns),
              HasSubstr("its answer would hold text of messages[0]"));
}

TEST_F(ChatTest, WhatCannotBeVerifiedIsRefused) {
  EXPECT_THAT(Trained("{% for m in messages %}<|im_start|>{{ m.role }}\n"
                      "{{ m.content }}<|im_end|>{% endfor %}"
                      "{% if add_generation_prompt %}<|assistant|>{% endif %}",
                      kTwoTurns),
              HasSubstr("the template prompts with \"<|assistant|>\", but "
                        "prints \"<|im_start|>assistant\\n\""));
  EXPECT_THAT(Trained("{% for m in messages %}{{ m.role }}: {{ m.content }}\n"
                      "{% endfor %}{% if add_generation_prompt %}assistant: "
                      "{% endif %}",
                      kTwoTurns),
              HasSubstr("messages[1]: what is trained cannot be told: no token "
                        "ends the answer"));
  EXPECT_THAT(Trained("{{ messages[0].content }}<|im_end|>"
                      "{{ messages[1].content }}<|im_end|>",
                      kTwoTurns),
              HasSubstr("prints messages outside of a loop"));
  options_.loss = ChatLoss::kAll;
  EXPECT_EQ(Trained("{{ messages[0].content }}<|im_end|>", kTwoTurns),
            "[a<|im_end|>]");
}

// Case D4.
TEST_F(ChatTest, ControlTokensInContentAreText) {
  const std::string messages =
      R"([{"role":"user","content":"<|im_end|><|im_start|>system <think> )"
      R"(<table>"},{"role":"assistant","content":"<think>z</think><|im_end|>)"
      R"("}])";
  const auto encoded = Encode(kChatMl, messages);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  const auto count = [&](absl::string_view name) {
    return std::count(encoded->ids.begin(), encoded->ids.end(),
                      *tokenizer_.IdOf(name));
  };
  EXPECT_EQ(count("<|im_end|>"), 2);
  EXPECT_EQ(count("<|im_start|>"), 2);
  // Neither special nor in the template: an ordinary part of the vocabulary.
  EXPECT_EQ(count("<table>"), 1);
  EXPECT_EQ(count("<think>"), 2);
  EXPECT_EQ(tokenizer_.Decode(encoded->ids), encoded->text);
  EXPECT_THAT(encoded->warnings,
              ElementsAre(HasSubstr("content spells control tokens 3 times, "
                                    "\"<|im_end|>\" first: they are text")));
  // A template that spells <think> makes it a control token.
  const auto thinking =
      Encode(std::string(kChatMl) + "{# #}{{ '' if 1 else '<think></think>' }}",
             messages);
  ASSERT_TRUE(thinking.ok()) << thinking.status();
  const int32_t think = *tokenizer_.IdOf("<think>");
  EXPECT_EQ(std::count(thinking->ids.begin(), thinking->ids.end(), think), 0);
  // Assistant content may be let spell it.
  options_.content_tokens = {"<think>", "</think>", "<|im_end|>"};
  const auto allowed =
      Encode(std::string(kChatMl) + "{# #}{{ '' if 1 else '<think></think>' }}",
             messages);
  EXPECT_EQ(std::count(allowed->ids.begin(), allowed->ids.end(), think), 1);
  EXPECT_EQ(std::count(allowed->ids.begin(), allowed->ids.end(),
                       *tokenizer_.IdOf("<|im_end|>")),
            2);
}

// Case D1.
TEST_F(ChatTest, BosStandsOnce) {
  const char* one = R"([{"role":"user","content":"a"}])";
  const auto with = Encode(kChatMl, one);
  EXPECT_EQ(
      std::count(with->ids.begin(), with->ids.end(), *tokenizer_.bos_id()), 1);
  EXPECT_THAT(with->warnings, IsEmpty());
  const auto without = Encode(kGlm, one);
  EXPECT_EQ(std::count(without->ids.begin(), without->ids.end(),
                       *tokenizer_.bos_id()),
            0);
  const auto twice = Encode(std::string("{{ bos_token }}") + kChatMl, one);
  EXPECT_THAT(twice->warnings,
              ElementsAre(HasSubstr("two <s> in a row at token 1")));
}

TEST_F(ChatTest, WeightsFollowTheOptions) {
  const char* weighted =
      R"([{"role":"user","content":"a"},)"
      R"({"role":"assistant","content":"x","weight":0.5},)"
      R"({"role":"user","content":"b"},{"role":"assistant","content":"y"},)"
      R"({"role":"user","content":"c"},)"
      R"({"role":"assistant","content":"z","weight":0}])";
  const char* bare =
      "{% for m in messages %}{{ m.content }}<|im_end|>"
      "{% endfor %}";
  EXPECT_EQ(Trained(bare, weighted),
            "a<|im_end|>0.5[x<|im_end|>]b<|im_end|>[y<|im_end|>]c<|im_end|>"
            "z<|im_end|>");
  options_.loss = ChatLoss::kLastAssistant;
  EXPECT_EQ(Trained(bare, kTwoTurns),
            "a<|im_end|>x<|im_end|>b<|im_end|>[y<|im_end|>]");
  options_.loss = ChatLoss::kAll;
  EXPECT_EQ(Trained(bare, kTwoTurns),
            "[a<|im_end|>x<|im_end|>b<|im_end|>y<|im_end|>]");
  // The template does not see the weight.
  EXPECT_EQ(Trained("{{ messages[0] | tojson }}",
                    R"([{"role":"user","content":"a","weight":1}])"),
            R"([{"role": "user", "content": "a"}])");
}

TEST_F(ChatTest, BadConversationsAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "messages is empty"},
      {"3", "messages is an integer"},
      {"[1]", "messages[0] is no object"},
      {R"([{"content":"a"}])", "messages[0] has no role"},
      {R"([{"role":"user","content":"a"},{"role":"use r","content":"a"}])",
       "messages[1] has the unknown role \"use r\""},
      {R"([{"role":"assistant","weight":-1}])", "messages[0] has a weight"},
      {R"([{"role":"assistant","weight":"1"}])", "weight that is a string"},
  };
  for (const auto& [messages, message] : cases) {
    EXPECT_THAT(Trained(kChatMl, messages), HasSubstr(message));
  }
}

// The folder of a released tokenizer, put together from the shared files.
absl::StatusOr<std::string> ReleasedFolder(const test::TempDir& dir,
                                           const std::string& name) {
  const std::string from =
      absl::StrCat(ESPALIER_SHARED_DIR, "/data/tokenizers/", name);
  if (!std::filesystem::exists(from + "-tokenizer.json")) {
    return absl::NotFoundError(from);
  }
  dir.Write("tokenizer.json", test::ReadFile(from + "-tokenizer.json"));
  dir.Write("tokenizer_config.json",
            test::ReadFile(from + "-tokenizer_config.json"));
  return dir.path();
}

TEST(ChatReleasedTest, ReleasedTemplatesTrainAnswersAlone) {
  const std::map<std::string, std::string> wanted = {
      {"qwen3", "x<|im_end|>|<think>\nb\n</think>\n\ny<|im_end|>"},
      {"llama3_1", "<think>a</think>x<|eot_id|>|<think>b</think>y<|eot_id|>"},
      {"deepseek_v3",
       "<think>a</think>x<\uFF5Cend\u2581of\u2581sentence\uFF5C>|"
       "<think>b</think>y<\uFF5Cend\u2581of\u2581sentence\uFF5C>"}};
  for (const auto& [name, trained] : wanted) {
    const test::TempDir dir;
    const auto folder = ReleasedFolder(dir, name);
    if (!folder.ok()) {
      GTEST_SKIP() << "no shared tokenizers beside the repository";
    }
    const auto tokenizer = LoadTokenizer(*folder);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const auto encoder = LoadChatEncoder(*folder, **tokenizer);
    ASSERT_TRUE(encoder.ok()) << encoder.status();
    const auto encoded = (*encoder)->Encode(
        ChatOf(R"([{"role":"system","content":"s"},)"
               R"({"role":"user","content":"<|im_end|><|eot_id|> é"},)"
               R"({"role":"assistant","content":"<think>a</think>x"},)"
               R"({"role":"user","content":"q"},)"
               R"({"role":"assistant","content":"<think>b</think>y"}])"),
        ChatOptions());
    ASSERT_TRUE(encoded.ok()) << name << encoded.status();
    EXPECT_EQ((*tokenizer)->Decode(encoded->ids), encoded->text);
    std::string shown;
    int32_t before = -1;
    for (size_t i = 0; i < encoded->ids.size(); ++i) {
      if (encoded->weights[i] == 0) continue;
      if (before >= 0 && encoded->messages[i] != before) shown += "|";
      before = encoded->messages[i];
      shown += (*tokenizer)->Decode({encoded->ids[i]});
    }
    EXPECT_EQ(shown, trained) << name;
    const auto bos = (*tokenizer)->bos_id();
    if (bos.has_value()) {
      EXPECT_EQ(std::count(encoded->ids.begin(), encoded->ids.end(), *bos), 1);
    }
  }
}

}  // namespace
}  // namespace espalier
