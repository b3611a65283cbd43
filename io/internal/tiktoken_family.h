#ifndef ESPALIER_IO_INTERNAL_TIKTOKEN_FAMILY_H_
#define ESPALIER_IO_INTERNAL_TIKTOKEN_FAMILY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "espalier/io/internal/tokenizer_config.h"
#include "espalier/io/internal/word_scanner.h"

namespace espalier::internal {

// What a rank file does not say: how text is split before merging, and the
// special tokens where no tokenizer_config.json lists them.
struct TiktokenFamily {
  const char* name;
  const char* tokenizer_class;  // of tokenizer_config.json, may be null
  const KnownExpression* expression;
  const char* bos_token;  // null where the family has none
  const char* eos_token;
  void (*add_special)(std::vector<AddedToken>* tokens);
  int32_t num_ranks;  // of the released rank file
  // Ids up to this, where special tokens leave them free, are
  // "<|reserved_token_ID|>"; 0 for none.
  int32_t reserved_end;
  bool add_bos;  // in front of plain text, unless the config says otherwise
  // Kimi's tokenizer cuts text every 400,000 characters and runs of space or
  // no space after 25,000, before anything else.
  bool cuts_long_text;
};

// Null when there is none.
const TiktokenFamily* FindTiktokenFamily(absl::string_view name);
// By tokenizer_class, else by the number of ranks; null when neither tells.
const TiktokenFamily* GuessTiktokenFamily(const TokenizerConfig& config,
                                          size_t num_ranks);
// "gpt2, llama3, ..." for messages.
std::string TiktokenFamilyNames();

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_TIKTOKEN_FAMILY_H_
