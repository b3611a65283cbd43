#ifndef ESPALIER_IO_INTERNAL_WORD_SCANNER_H_
#define ESPALIER_IO_INTERNAL_WORD_SCANNER_H_

#include <cstddef>

#include "absl/strings/string_view.h"

#include "espalier/io/internal/pattern.h"

namespace espalier::internal {

// Finds the first match of one expression in `text`, valid UTF-8, at or after
// `start`, which is at a character; never an empty one. False when there is
// none. Takes time linear in what it passes over.
using ScanFn = bool(absl::string_view text, size_t start, Match* match);

// Hand-written equivalents of the expressions that most released tokenizers
// split by, many times faster than PCRE2 and with the characters of Unicode 16.
// Null for any other expression.
ScanFn* FindScanner(absl::string_view expression);

// The expressions that FindScanner knows.
struct KnownExpression {
  const char* name;
  const char* expression;
  ScanFn* scan;
};
// openai/gpt-2 encoder.py; huggingface/tokenizers, pre_tokenizers/byte_level.rs
extern const KnownExpression kGpt2Expression;
// Llama 3 and everything like openai/tiktoken's cl100k_base.
extern const KnownExpression kLlama3Expression;
extern const KnownExpression kQwenExpression;
// openai/tiktoken's o200k_base.
extern const KnownExpression kO200kExpression;
// Kimi: as o200k, Han characters apart. Class intersection (&&) is written as
// tiktoken has it, which PCRE2 cannot read.
extern const KnownExpression kKimiExpression;
// DeepSeek V3 splits by these three, one after the other.
extern const KnownExpression kDeepSeekNumbersExpression;
extern const KnownExpression kDeepSeekCjkExpression;
extern const KnownExpression kDeepSeekWordsExpression;

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_WORD_SCANNER_H_
