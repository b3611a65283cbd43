#include "espalier/io/internal/word_encoder.h"

#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

namespace {

// Working memory of one long word is not kept.
constexpr size_t kMaxKeptSymbols = size_t{1} << 16;

}  // namespace

WordEncoder::Call::~Call() { scratch_->TrimTo(kMaxKeptSymbols); }

absl::Status WordEncoder::Call::Encode(absl::string_view text, bool at_start,
                                       bool drop_unknown,
                                       std::vector<int32_t>* ids) {
  return encoder_.pre_tokenizer_.Split(
      text, at_start, [&](absl::string_view word) {
        return encoder_.bpe_.Encode(word, drop_unknown, &*scratch_, ids);
      });
}

absl::Status CheckText(absl::string_view text) {
  constexpr size_t kMaxBytes = std::numeric_limits<int32_t>::max();
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "text of ", text.size(), " bytes, at most ", kMaxBytes, " go"));
  }
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid == text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("text is not UTF-8 at byte ", invalid));
}

}  // namespace espalier::internal
