#ifndef ESPALIER_IO_INTERNAL_TIKTOKEN_TOKENIZER_H_
#define ESPALIER_IO_INTERNAL_TIKTOKEN_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/internal/tiktoken_family.h"
#include "espalier/io/internal/tokenizer_config.h"
#include "espalier/io/internal/word_encoder.h"
#include "espalier/io/tokenizer.h"

namespace espalier::internal {

// Whether a file looks like tiktoken ranks: a line of base64 and a number.
bool LooksLikeRanks(absl::string_view text);

// Tokens by rank of "base64 rank" lines, in any order, ranks from 0 without a
// gap. INVALID_ARGUMENT names the line.
absl::StatusOr<std::vector<std::string>> ParseRanks(absl::string_view text,
                                                    const std::string& where);

// Byte-level BPE of a tiktoken rank file. Ordinary tokens are spelled in
// GPT-2's stand-ins, as in a tokenizer.json.
class TiktokenTokenizer final : public Tokenizer {
 public:
  // An empty family name leaves it to GuessTiktokenFamily.
  static absl::StatusOr<std::unique_ptr<TiktokenTokenizer>> Load(
      absl::string_view ranks, const TokenizerConfig& config,
      absl::string_view family, const std::string& where);

  using Tokenizer::Decode;
  using Tokenizer::Encode;
  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text, const EncodeOptions& options) const override;
  std::string Decode(absl::Span<const int32_t> ids,
                     bool skip_special_tokens) const override;
  int32_t vocab_size() const override;
  std::optional<int32_t> IdOf(absl::string_view token) const override;
  std::string TokenOf(int32_t id) const override;
  bool IsSpecial(int32_t id) const override;
  std::vector<AddedToken> added_tokens() const override {
    return added_.tokens();
  }
  std::optional<int32_t> bos_id() const override { return bos_id_; }
  std::optional<int32_t> eos_id() const override { return eos_id_; }

 private:
  TiktokenTokenizer(const TiktokenFamily& family, PreTokenizer pre_tokenizer,
                    Bpe bpe, std::vector<std::string> tokens);
  absl::Status AddSpecialTokens(const TokenizerConfig& config,
                                const std::string& where);
  absl::Status SetConfig(const TokenizerConfig& config,
                         const std::string& where);
  absl::Status EncodePiece(absl::string_view piece,
                           const EncodeOptions& options,
                           WordEncoder::Call* call,
                           std::vector<int32_t>* ids) const;

  const TiktokenFamily& family_;
  const WordEncoder words_;
  const std::vector<std::string> tokens_;  // bytes, by id
  AddedVocabulary added_;
  std::optional<int32_t> bos_id_;
  std::optional<int32_t> eos_id_;
  bool add_bos_ = false;
  bool add_eos_ = false;
};

// Where Kimi's tokenizer cuts text, valid UTF-8, before anything else: calls
// on_piece for each piece.
absl::Status CutLongText(
    absl::string_view text,
    absl::FunctionRef<absl::Status(absl::string_view)> on_piece);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_TIKTOKEN_TOKENIZER_H_
