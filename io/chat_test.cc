#include "espalier/io/chat.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/chat_sample.h"
#include "espalier/io/internal/test_util.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A token a byte, and added ones from 256 on.
class ByteTokenizer final : public Tokenizer {
 public:
  struct Added {
    std::string content;
    bool special = true;
    int32_t id = -1;  // the next free one
  };
  ByteTokenizer(std::vector<Added> added, std::string bos, std::string eos)
      : bos_(std::move(bos)), eos_(std::move(eos)) {
    int32_t next = 256;
    for (Added& token : added) {
      if (token.id < 0) token.id = next++;
      added_[token.id] = token;
    }
  }
  using Tokenizer::Decode;
  using Tokenizer::Encode;
  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text, const EncodeOptions& options) const override {
    std::vector<int32_t> ids;
    if (options.add_special_tokens && bos_id()) ids.push_back(*bos_id());
    while (!text.empty()) {
      const Added* best = nullptr;
      for (const auto& [id, token] : added_) {
        if (!absl::StartsWith(text, token.content)) continue;
        if (token.special && !options.match_special_tokens) continue;
        if (options.unmatched_tokens != nullptr &&
            options.unmatched_tokens->contains(id)) {
          continue;
        }
        best = &token;
      }
      for (const auto& [word, id] : words_) {
        if (best == nullptr && text == word) {
          ids.push_back(id);
          return ids;
        }
      }
      ids.push_back(best != nullptr ? best->id : static_cast<uint8_t>(text[0]));
      text.remove_prefix(best != nullptr ? best->content.size() : 1);
    }
    return ids;
  }
  std::string Decode(absl::Span<const int32_t> ids, bool skip) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id >= 256) {
        if (!skip) text += TokenOf(id);
      } else {
        text += static_cast<char>(id);
      }
    }
    return text;
  }
  int32_t vocab_size() const override { return 170000; }
  std::optional<int32_t> IdOf(absl::string_view name) const override {
    for (const auto& [id, token] : added_) {
      if (token.content == name) return id;
    }
    return std::nullopt;
  }
  std::string TokenOf(int32_t id) const override {
    const auto found = added_.find(id);
    if (found != added_.end()) return found->second.content;
    for (const auto& [word, number] : words_) {
      if (number == id) return word;
    }
    return "";
  }
  bool IsSpecial(int32_t id) const override {
    const auto found = added_.find(id);
    return found != added_.end() && found->second.special;
  }
  std::vector<AddedToken> added_tokens() const override {
    std::vector<AddedToken> tokens;
    for (const auto& [id, token] : added_) {
      tokens.push_back({id, token.content, token.special});
    }
    return tokens;
  }
  std::optional<int32_t> bos_id() const override { return IdOf(bos_); }
  std::optional<int32_t> eos_id() const override { return IdOf(eos_); }
  // A whole text that is one token.
  void AddWord(const std::string& word, int32_t id) { words_[word] = id; }

 private:
  std::map<int32_t, Added> added_;
  std::map<std::string, int32_t> words_;
  std::string bos_, eos_;
};

constexpr char kChatMl[] =
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

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

ByteTokenizer MakeTokenizer(const std::string& eos = "<|im_end|>") {
  return ByteTokenizer({{"<s>"},
                        {"<|im_start|>"},
                        {"<|im_end|>"},
                        {"<|user|>"},
                        {"<|assistant|>"},
                        {"<|system|>"},
                        {"[gMASK]"},
                        {"<pad>"},
                        {"<think>", false},
                        {"</think>", false},
                        {"<table>", false}},
                       "<s>", eos);
}

Chat ChatOf(absl::string_view messages) {
  Chat chat;
  const auto parsed = ParseJsonText(messages);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  if (parsed.ok()) chat.messages = *parsed;
  return chat;
}

class ChatTest : public ::testing::Test {
 protected:
  absl::StatusOr<EncodedChat> Encode(absl::string_view chat_template,
                                     absl::string_view messages) {
    const auto encoder =
        MakeTemplateEncoder(chat_template, config_, "t", tokenizer_);
    if (!encoder.ok()) return encoder.status();
    return (*encoder)->Encode(ChatOf(messages), options_);
  }
  // The text of the tokens, what is trained in [], weights other than 1 in
  // front of it.
  std::string Show(const EncodedChat& encoded) {
    std::string shown;
    float before = 0;
    for (size_t i = 0; i < encoded.ids.size(); ++i) {
      if (encoded.weights[i] != before) {
        if (before != 0) shown += "]";
        before = encoded.weights[i];
        if (before != 0) {
          absl::StrAppend(&shown, before == 1 ? "" : absl::StrCat(before), "[");
        }
      }
      shown += tokenizer_.Decode({encoded.ids[i]});
    }
    if (before != 0) shown += "]";
    return shown;
  }
  std::string Trained(absl::string_view chat_template,
                      absl::string_view messages) {
    const auto encoded = Encode(chat_template, messages);
    return encoded.ok() ? Show(*encoded)
                        : std::string(encoded.status().message());
  }

  ByteTokenizer tokenizer_ = MakeTokenizer();
  std::string config_ = R"({"bos_token": "<s>", "eos_token": "<|im_end|>"})";
  ChatOptions options_;
};

constexpr char kTwoTurns[] =
    R"([{"role":"user","content":"a"},{"role":"assistant","content":"x"},)"
    R"({"role":"user","content":"b"},{"role":"assistant","content":"y"}])";

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
  const auto pair = EncodePromptCompletion(tokenizer_, "p<s>", "c");
  ASSERT_TRUE(pair.ok());
  EXPECT_EQ(Show(*pair), "<s>p<s>[c<|im_end|>]");
  EXPECT_EQ(
      std::count(pair->ids.begin(), pair->ids.end(), *tokenizer_.bos_id()), 1);
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

TEST_F(ChatTest, ManyTurnsTakeLinearTime) {
  JsonValue::Array messages;
  for (int i = 0; i < 4000; ++i) {
    for (const char* role : {"user", "assistant"}) {
      JsonValue message;
      message.Set("role", role);
      message.Set("content", "<think>a</think>b");
      messages.push_back(message);
    }
  }
  for (const char* chat_template : {kChatMl, kThinking}) {
    const auto encoder =
        MakeTemplateEncoder(chat_template, config_, "t", tokenizer_);
    Chat chat;
    chat.messages = messages;
    const auto encoded = (*encoder)->Encode(chat, options_);
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    EXPECT_GT(encoded->ids.size(), 90000u);
  }
}

TEST(ChatKimiTest, KimiLinearHasItsIds) {
  ByteTokenizer tokenizer({{"[BOS]", true, 163584},
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
  ByteTokenizer tokenizer({{"<|end_of_msg|>", true, 163586},
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

TEST_F(ChatTest, SamplesOfADataSetAreChats) {
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
  example.text = "t";
  EXPECT_EQ(encoder->Encode(example)->ids.size(), 3u);
  example.kind = Example::Kind::kChat;
  const auto none = MakeChatSampleEncoder(absl::NotFoundError("no template"),
                                          MakePlainEncoder(tokenizer_, {}),
                                          tokenizer_, options_);
  EXPECT_EQ(none->Encode(example).status().message(), "no template");
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
  const std::map<std::string, std::pair<std::string, std::string>> wanted = {
      {"qwen3", {"x<|im_end|>|<think>\nb\n</think>\n\ny<|im_end|>", ""}},
      {"llama3_1",
       {"<think>a</think>x<|eot_id|>|<think>b</think>y<|eot_id|>", ""}},
      {"deepseek_v3",
       {"<think>a</think>x<\uFF5Cend\u2581of\u2581sentence\uFF5C>|"
        "<think>b</think>y<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
        ""}}};
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
    EXPECT_EQ(shown, trained.first) << name;
    const auto bos = (*tokenizer)->bos_id();
    if (bos.has_value()) {
      EXPECT_EQ(std::count(encoded->ids.begin(), encoded->ids.end(), *bos), 1);
    }
  }
}

}  // namespace
}  // namespace espalier
