#ifndef ESPALIER_IO_INTERNAL_PRE_TOKENIZER_H_
#define ESPALIER_IO_INTERNAL_PRE_TOKENIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/internal/pattern.h"
#include "espalier/io/internal/tokenizer_limits.h"
#include "espalier/io/internal/word_scanner.h"
#include "espalier/io/json_object.h"

namespace espalier::internal {

// Where Metaspace puts a space in front of text that has none.
enum class PrependScheme { kAlways, kFirst, kNever };

// Of a Metaspace pre-tokenizer or decoder.
absl::Status ParseMetaspace(const JsonObject& json, std::string* space,
                            PrependScheme* prepend, bool* split);

// A Pattern, or a hand-written scanner that finds the same.
struct Splitter {
  std::shared_ptr<const Pattern> pattern;
  ScanFn* scan = nullptr;
};

// The "pre_tokenizer" of a tokenizer.json: cuts text into words, which are
// encoded one by one. Knows Sequence, Split by an expression or a string
// (Isolated), Digits, ByteLevel as the last step, and Metaspace as the only
// one; UNIMPLEMENTED names the others.
// Thread-safe once loaded.
class PreTokenizer {
 public:
  // `tokenizer` is the whole file's object.
  static absl::StatusOr<PreTokenizer> Load(const JsonObject& tokenizer);
  // Splits into words of raw bytes by one expression.
  static absl::StatusOr<PreTokenizer> ByExpression(
      absl::string_view expression);

  // Whether words are bytes, spelled with GPT-2's stand-ins.
  bool byte_level() const { return byte_level_; }

  // Calls on_word for each word of `text`, valid UTF-8, in order; an error of
  // on_word ends it. `at_start`: no other text or token stands before it.
  absl::Status Split(
      absl::string_view text, bool at_start,
      absl::FunctionRef<absl::Status(absl::string_view)> on_word) const;

 private:
  absl::Status Add(const JsonObject& json);
  absl::Status AddSplit(const JsonObject& json);
  absl::Status AddByteLevel(const JsonObject& json);
  absl::Status AddDigits(const JsonObject& json);
  absl::Status AddMetaspace(const JsonObject& json);
  absl::Status SplitMetaspace(
      absl::string_view text, bool at_start,
      absl::FunctionRef<absl::Status(absl::string_view)> on_word) const;
  absl::Status AddExpression(absl::string_view expression);
  absl::Status SplitFrom(
      size_t step, absl::string_view text,
      absl::Span<const std::unique_ptr<PatternMatcher>> matchers,
      absl::FunctionRef<absl::Status(absl::string_view)> on_word) const;

  StepLimits limits_;
  std::vector<Splitter> splitters_;
  bool byte_level_ = false;
  bool add_prefix_space_ = false;
  std::string space_;  // Metaspace: what stands for a space; else empty
  PrependScheme prepend_ = PrependScheme::kAlways;
  bool split_at_space_ = true;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_PRE_TOKENIZER_H_
