#ifndef ESPALIER_TESTS_SUPPORT_LETTER_TOKENIZER_H_
#define ESPALIER_TESTS_SUPPORT_LETTER_TOKENIZER_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace espalier::test {

// A tokenizer.json with one token for each letter from "a" (0) to `last`, and
// behind them the special tokens <s> and </s>.
inline std::string LetterTokenizer(char last) {
  const int num_letters = last - 'a' + 1;
  std::string letters, added;
  for (int id = 0; id < num_letters; ++id) {
    absl::StrAppend(&letters, id == 0 ? "" : ",", "\"",
                    std::string(1, static_cast<char>('a' + id)), "\":", id);
  }
  for (const absl::string_view name : {"<s>", "</s>"}) {
    absl::StrAppend(&added, added.empty() ? "" : ",", R"({"id":)",
                    num_letters + (added.empty() ? 0 : 1), R"(,"content":")",
                    name,
                    R"(","special":true,"single_word":false,"lstrip":false,)"
                    R"("rstrip":false,"normalized":false})");
  }
  return absl::StrCat(
      R"({"version":"1.0","added_tokens":[)", added,
      R"(],"normalizer":null,"pre_tokenizer":null,"post_processor":null,)"
      R"("decoder":null,"model":{"type":"BPE","vocab":{)",
      letters, R"(},"merges":[]}})");
}

// The tokenizer_config.json beside it.
inline constexpr char kLetterTokenizerConfig[] =
    R"({"bos_token":"<s>","eos_token":"</s>"})";

}  // namespace espalier::test

#endif  // ESPALIER_TESTS_SUPPORT_LETTER_TOKENIZER_H_
