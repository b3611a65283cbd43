#ifndef ESPALIER_IO_TOKENIZER_H_
#define ESPALIER_IO_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace espalier {

// A token that is found in text as a whole, before the model cuts it.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;   // looked for in the normalized text
  bool single_word = false;  // only where no word goes on
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and behind it
};

struct EncodeOptions {
  // What the tokenizer's own post-processor puts around a text (<s>, usually).
  bool add_special_tokens = false;
  // Whether text that spells a special token becomes that token. False treats
  // it as the text it is: right for data, which must not be able to forge a
  // control token.
  bool match_special_tokens = false;
  // Ids of added tokens that are text where they are spelled, whatever
  // match_special_tokens says; borrowed, may be null.
  const absl::flat_hash_set<int32_t>* unmatched_tokens = nullptr;
  // Leaves out characters that the vocabulary cannot express, as the reference
  // library does, instead of failing.
  bool drop_unknown = false;
};

// Text to token ids and back. Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Fails INVALID_ARGUMENT on text that is not UTF-8 (with the byte) and on a
  // character that the vocabulary cannot express.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text, const EncodeOptions& options) const = 0;
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text) const {
    return Encode(text, EncodeOptions());
  }
  // Ids without a token are passed over; bytes that are not UTF-8 become
  // U+FFFD.
  virtual std::string Decode(absl::Span<const int32_t> ids,
                             bool skip_special_tokens) const = 0;
  std::string Decode(absl::Span<const int32_t> ids) const {
    return Decode(ids, /*skip_special_tokens=*/false);
  }

  // One above the highest id; a model's vocab_size may be larger.
  virtual int32_t vocab_size() const = 0;
  virtual std::optional<int32_t> IdOf(absl::string_view token) const = 0;
  // As the file spells it; empty for an id without a token.
  virtual std::string TokenOf(int32_t id) const = 0;
  virtual bool IsSpecial(int32_t id) const = 0;
  // In ascending order of ids.
  virtual std::vector<AddedToken> added_tokens() const = 0;
  // Of tokenizer_config.json, where it names them.
  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> eos_id() const = 0;
};

// Reads the tokenizer of a model's folder, with tokenizer_config.json where
// there is one. Of several vocabularies the first of these counts:
//   tokenizer.json     Hugging Face: BPE, byte-level or with byte fallback
//   tiktoken.model, *.tiktoken    tiktoken ranks
//   tokenizer.model    tiktoken ranks or a SentencePiece model, by its content
// `dir` may also name such a file itself. How text is split before merging is
// not in a rank file: `family` says it (gpt2, cl100k, o200k, llama3, qwen,
// kimi); when empty, tokenizer_class or the number of ranks does.
// Fails NOT_FOUND without a vocabulary; UNIMPLEMENTED by name of a construct
// that is not known; INVALID_ARGUMENT where files contradict themselves.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::string& dir, absl::string_view family = "");

// The same from the texts of the files; the kind of vocabulary is known by its
// content. `config` may be empty. `where` goes in front of messages.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizer(
    absl::string_view vocabulary, absl::string_view config,
    const std::string& where, absl::string_view family = "");

}  // namespace espalier

#endif  // ESPALIER_IO_TOKENIZER_H_
