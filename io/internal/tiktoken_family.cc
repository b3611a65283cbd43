#include "espalier/io/internal/tiktoken_family.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace espalier::internal {

namespace {

void Add(int32_t id, std::string content, std::vector<AddedToken>* tokens) {
  AddedToken& token = tokens->emplace_back();
  token.id = id;
  token.content = std::move(content);
  token.special = true;
}

// openai/tiktoken, openai_public.py.
void AddGpt2(std::vector<AddedToken>* tokens) {
  Add(50256, "<|endoftext|>", tokens);
}

void AddCl100k(std::vector<AddedToken>* tokens) {
  Add(100257, "<|endoftext|>", tokens);
  Add(100258, "<|fim_prefix|>", tokens);
  Add(100259, "<|fim_middle|>", tokens);
  Add(100260, "<|fim_suffix|>", tokens);
  Add(100276, "<|endofprompt|>", tokens);
}

void AddO200k(std::vector<AddedToken>* tokens) {
  Add(199999, "<|endoftext|>", tokens);
  Add(200018, "<|endofprompt|>", tokens);
}

// What Llama 3.0 to 3.3 agree on.
void AddLlama3(std::vector<AddedToken>* tokens) {
  Add(128000, "<|begin_of_text|>", tokens);
  Add(128001, "<|end_of_text|>", tokens);
  Add(128006, "<|start_header_id|>", tokens);
  Add(128007, "<|end_header_id|>", tokens);
  Add(128009, "<|eot_id|>", tokens);
}

// QwenLM/Qwen, tokenization_qwen.py.
void AddQwen(std::vector<AddedToken>* tokens) {
  Add(151643, "<|endoftext|>", tokens);
  Add(151644, "<|im_start|>", tokens);
  Add(151645, "<|im_end|>", tokens);
  for (int i = 0; i < 205; ++i) {
    Add(151646 + i, absl::StrCat("<|extra_", i, "|>"), tokens);
  }
}

void AddKimi(std::vector<AddedToken>* tokens) {
  Add(163584, "[BOS]", tokens);
  Add(163585, "[EOS]", tokens);
  Add(163838, "[UNK]", tokens);
  Add(163839, "[PAD]", tokens);
}

constexpr TiktokenFamily kFamilies[] = {
    {"gpt2", "GPT2Tokenizer", &kGpt2Expression, nullptr, "<|endoftext|>",
     AddGpt2, 50256, 0, false, false},
    {"cl100k", nullptr, &kLlama3Expression, nullptr, "<|endoftext|>", AddCl100k,
     100256, 0, false, false},
    {"o200k", nullptr, &kO200kExpression, nullptr, "<|endoftext|>", AddO200k,
     199998, 0, false, false},
    {"llama3", nullptr, &kLlama3Expression, "<|begin_of_text|>",
     "<|end_of_text|>", AddLlama3, 128000, 0, true, false},
    {"qwen", "QWenTokenizer", &kQwenExpression, nullptr, "<|endoftext|>",
     AddQwen, 151643, 0, false, false},
    {"kimi", "TikTokenTokenizer", &kKimiExpression, "[BOS]", "[EOS]", AddKimi,
     163584, 163840, false, true},
};

}  // namespace

const TiktokenFamily* FindTiktokenFamily(absl::string_view name) {
  for (const TiktokenFamily& family : kFamilies) {
    if (name == family.name) return &family;
  }
  return nullptr;
}

const TiktokenFamily* GuessTiktokenFamily(const TokenizerConfig& config,
                                          size_t num_ranks) {
  for (const TiktokenFamily& family : kFamilies) {
    if (family.tokenizer_class != nullptr &&
        config.tokenizer_class == family.tokenizer_class) {
      return &family;
    }
  }
  for (const TiktokenFamily& family : kFamilies) {
    if (num_ranks == static_cast<size_t>(family.num_ranks)) return &family;
  }
  return nullptr;
}

std::string TiktokenFamilyNames() {
  std::string names;
  for (const TiktokenFamily& family : kFamilies) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", family.name);
  }
  return names;
}

}  // namespace espalier::internal
