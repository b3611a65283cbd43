#ifndef ESPALIER_IO_INTERNAL_SENTENCE_PIECE_TOKENIZER_H_
#define ESPALIER_IO_INTERNAL_SENTENCE_PIECE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/internal/scratch_pool.h"
#include "espalier/io/internal/sentence_piece_model.h"
#include "espalier/io/internal/tokenizer_config.h"
#include "espalier/io/internal/word_cache.h"
#include "espalier/io/tokenizer.h"

namespace espalier::internal {

// A SentencePiece model, run by its own library, with the added tokens of
// tokenizer_config.json. Text between two matched tokens is encoded as a text
// of its own, with the space in front that the model asks for. Control pieces
// (<s>) are special tokens; where they are not left out, Decode spells them.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<SentencePieceTokenizer>> Load(
      absl::string_view model, const TokenizerConfig& config,
      const std::string& where);

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
  explicit SentencePieceTokenizer(std::unique_ptr<SentencePieceModel> model)
      : model_(std::move(model)) {}
  absl::Status AddTokens(const TokenizerConfig& config,
                         const std::string& where);
  absl::Status SetConfig(const TokenizerConfig& config,
                         const std::string& where);
  bool WordsAreApart() const;
  absl::Status EncodeText(absl::string_view text, WordCache* cache,
                          std::vector<int32_t>* ids) const;
  absl::Status EncodeWord(absl::string_view word, WordCache* cache,
                          std::vector<int32_t>* ids) const;

  const std::unique_ptr<SentencePieceModel> model_;
  AddedVocabulary added_;
  std::optional<int32_t> bos_id_;
  std::optional<int32_t> eos_id_;
  bool add_bos_ = false;
  bool add_eos_ = false;
  // Whether text may be encoded word by word: the ids are the same, and words
  // met before cost nothing.
  bool by_word_ = false;
  mutable ScratchPool<WordCache> caches_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_SENTENCE_PIECE_TOKENIZER_H_
