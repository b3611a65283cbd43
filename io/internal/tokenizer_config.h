#ifndef ESPALIER_IO_INTERNAL_TOKENIZER_CONFIG_H_
#define ESPALIER_IO_INTERNAL_TOKENIZER_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/internal/added_tokens.h"
#include "espalier/io/json_object.h"
#include "espalier/io/tokenizer.h"

namespace espalier::internal {

// What a tokenizer reads of tokenizer_config.json; the other keys are for
// other readers.
struct TokenizerConfig {
  std::string tokenizer_class;
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  std::string bos_token;  // empty: not named
  std::string eos_token;
  std::vector<AddedToken> added_tokens;  // added_tokens_decoder, ids ascending
};

// Empty text gives an empty config. `where` goes in front of messages.
absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(absl::string_view text,
                                                     const std::string& where);

// Finds the ids of bos_token and eos_token; INVALID_ARGUMENT when the
// vocabulary has no such token.
absl::Status FindBosAndEos(const TokenizerConfig& config,
                           const std::string& where, const Tokenizer& tokenizer,
                           std::optional<int32_t>* bos,
                           std::optional<int32_t>* eos);

// Added tokens: id to token and spelling to id. Thread-safe once filled.
class AddedVocabulary {
 public:
  // False when the id or the spelling is taken; empty spellings are left out.
  bool Add(const AddedToken& token);
  // The same without the matcher, where text is matched in another way.
  bool AddUnmatched(const AddedToken& token);
  const AddedToken* Find(int32_t id) const;
  std::optional<int32_t> IdOf(absl::string_view spelling) const;
  const AddedTokenMatcher& matcher() const { return matcher_; }
  // Ids ascending.
  std::vector<AddedToken> tokens() const;
  // One above the highest id; 0 without tokens.
  int32_t size() const { return size_; }

 private:
  AddedTokenMatcher matcher_;
  absl::flat_hash_map<int32_t, AddedToken> tokens_;
  absl::flat_hash_map<std::string, int32_t> ids_;
  int32_t size_ = 0;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_TOKENIZER_CONFIG_H_
