#ifndef ESPALIER_IO_INTERNAL_BYTE_TOKENIZER_H_
#define ESPALIER_IO_INTERNAL_BYTE_TOKENIZER_H_

#include <optional>
#include <string>
#include <vector>

#include "espalier/io/tokenizer.h"

namespace espalier::test {

// For tests: one id for each byte; 256 and 257 begin and end a document. "#"
// has no token.
class ByteTokenizer final : public Tokenizer {
 public:
  using Tokenizer::Decode;
  using Tokenizer::Encode;
  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text, const EncodeOptions& /*options*/) const override {
    if (text.find('#') != absl::string_view::npos) {
      return absl::InvalidArgumentError("no token for \"#\"");
    }
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
    return ids;
  }
  std::string Decode(absl::Span<const int32_t> ids,
                     bool /*skip*/) const override {
    std::string text;
    for (const int32_t id : ids) {
      text += id == 256 ? '<' : id == 257 ? '>' : static_cast<char>(id);
    }
    return text;
  }
  int32_t vocab_size() const override { return 258; }
  std::optional<int32_t> IdOf(absl::string_view /*token*/) const override {
    return std::nullopt;
  }
  std::string TokenOf(int32_t /*id*/) const override { return ""; }
  bool IsSpecial(int32_t id) const override { return id >= 256; }
  std::vector<AddedToken> added_tokens() const override { return {}; }
  std::optional<int32_t> bos_id() const override { return 256; }
  std::optional<int32_t> eos_id() const override { return 257; }
};

}  // namespace espalier::test

#endif  // ESPALIER_IO_INTERNAL_BYTE_TOKENIZER_H_
