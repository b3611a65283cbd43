#ifndef ESPALIER_IO_INTERNAL_HUGGING_FACE_TOKENIZER_H_
#define ESPALIER_IO_INTERNAL_HUGGING_FACE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/internal/added_tokens.h"
#include "espalier/io/internal/bpe.h"
#include "espalier/io/internal/normalizer.h"
#include "espalier/io/internal/pre_tokenizer.h"
#include "espalier/io/internal/token_decoder.h"
#include "espalier/io/internal/tokenizer_config.h"
#include "espalier/io/internal/word_encoder.h"
#include "espalier/io/json_object.h"
#include "espalier/io/tokenizer.h"

namespace espalier::internal {

// The parts of a tokenizer.json in the order in which text passes them: added
// tokens that are not normalized, normalizer, added tokens that are,
// pre-tokenizer, model, post-processor.
class HuggingFaceTokenizer final : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<HuggingFaceTokenizer>> Load(
      const JsonObject& json);
  // Takes bos_token and eos_token.
  absl::Status SetConfig(const TokenizerConfig& config,
                         const std::string& where);

  using Tokenizer::Decode;
  using Tokenizer::Encode;
  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text, const EncodeOptions& options) const override;
  std::string Decode(absl::Span<const int32_t> ids,
                     bool skip_special_tokens) const override;
  int32_t vocab_size() const override { return vocab_size_; }
  std::optional<int32_t> IdOf(absl::string_view token) const override;
  std::string TokenOf(int32_t id) const override;
  bool IsSpecial(int32_t id) const override;
  std::vector<AddedToken> added_tokens() const override {
    return added_.tokens();
  }
  std::optional<int32_t> bos_id() const override { return bos_id_; }
  std::optional<int32_t> eos_id() const override { return eos_id_; }

 private:
  HuggingFaceTokenizer(Bpe bpe, Normalizer normalizer,
                       PreTokenizer pre_tokenizer, TokenDecoder decoder);
  const Bpe& bpe() const { return words_.bpe(); }
  absl::Status LoadAddedTokens(const JsonObject& json);
  absl::Status LoadPostProcessor(const JsonObject& json);
  absl::Status LoadTemplate(const JsonObject& json);

  Normalizer normalizer_;
  const WordEncoder words_;
  TokenDecoder decoder_;
  AddedTokenMatcher plain_tokens_;       // looked for in the text as it is
  AddedTokenMatcher normalized_tokens_;  // looked for after normalization
  AddedVocabulary added_;
  std::vector<int32_t> prefix_;  // of the post-processor
  std::vector<int32_t> suffix_;
  int32_t vocab_size_ = 0;
  std::optional<int32_t> bos_id_;
  std::optional<int32_t> eos_id_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_HUGGING_FACE_TOKENIZER_H_
