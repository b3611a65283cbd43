// Input: a rank file; behind a NUL a byte that chooses how text is split, and a
// text to encode; behind another NUL a tokenizer_config.json.

#include "espalier/tests/fuzz/fuzz_input.h"
#include "espalier/tests/fuzz/tokenizer_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr const char* kFamilies[] = {"gpt2", "cl100k", "o200k", "llama3",
                                       "qwen", "kimi",   "",      "no such"};
  const auto [ranks, rest] =
      espalier::fuzz::SplitAtNul(espalier::fuzz::Text(data, size));
  auto [text, config] = espalier::fuzz::SplitAtNul(rest);
  if (ranks.find('{') < 4) return 0;  // the business of tokenizer_json
  if (text.empty()) {
    espalier::fuzz::CheckTokenizer(ranks, config, "gpt2", ranks);
    return 0;
  }
  const char* family = kFamilies[static_cast<uint8_t>(text[0]) % 8];
  text.remove_prefix(1);
  espalier::fuzz::CheckTokenizer(ranks, config, family, text);
  return 0;
}
