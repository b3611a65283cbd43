#ifndef ESPALIER_IO_INTERNAL_CHAT_TEST_UTIL_H_
#define ESPALIER_IO_INTERNAL_CHAT_TEST_UTIL_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "espalier/io/chat.h"

namespace espalier::test {

// A token a byte, and added ones from 256 on.
class AddedByteTokenizer final : public Tokenizer {
 public:
  struct Added {
    std::string content;
    bool special = true;
    int32_t id = -1;  // the next free one
  };
  AddedByteTokenizer(std::vector<Added> added, std::string bos, std::string eos)
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

inline constexpr char kChatMl[] =
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

inline AddedByteTokenizer MakeTokenizer(const std::string& eos = "<|im_end|>") {
  return AddedByteTokenizer({{"<s>"},
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

inline AddedByteTokenizer KimiK3Tokenizer() {
  return AddedByteTokenizer({{"<|end_of_msg|>", true, 163586},
                             {"<|open|>", true, 163587},
                             {"<|close|>", true, 163588},
                             {"<|sep|>", true, 163589}},
                            "[BOS]", "<|end_of_msg|>");
}

// A chat from the JSON text of its messages.
inline Chat ChatOf(absl::string_view messages) {
  Chat chat;
  const auto parsed = ParseJsonText(messages);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  if (parsed.ok()) chat.messages = *parsed;
  return chat;
}

// The text of the tokens, what is trained in [], weights other than 1 in
// front of it.
inline std::string Show(const Tokenizer& tokenizer,
                        const EncodedChat& encoded) {
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
    shown += tokenizer.Decode({encoded.ids[i]});
  }
  if (before != 0) shown += "]";
  return shown;
}

// Chats of MakeTokenizer() through a template.
class ChatTest : public ::testing::Test {
 protected:
  absl::StatusOr<EncodedChat> Encode(absl::string_view chat_template,
                                     absl::string_view messages) {
    const auto encoder =
        MakeTemplateEncoder(chat_template, config_, "t", tokenizer_);
    if (!encoder.ok()) return encoder.status();
    return (*encoder)->Encode(ChatOf(messages), options_);
  }
  std::string Trained(absl::string_view chat_template,
                      absl::string_view messages) {
    const auto encoded = Encode(chat_template, messages);
    return encoded.ok() ? Show(tokenizer_, *encoded)
                        : std::string(encoded.status().message());
  }

  AddedByteTokenizer tokenizer_ = MakeTokenizer();
  std::string config_ = R"({"bos_token": "<s>", "eos_token": "<|im_end|>"})";
  ChatOptions options_;
};

}  // namespace espalier::test

#endif  // ESPALIER_IO_INTERNAL_CHAT_TEST_UTIL_H_
