#include "espalier/io/internal/sentence_piece_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/internal/char_class.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/internal/word_encoder.h"

namespace espalier::internal {

namespace {

// U+2581
constexpr char kSpace[] = "\xE2\x96\x81";
constexpr size_t kSpaceBytes = 3;

std::string_view ToStd(absl::string_view text) {
  return {text.data(), text.size()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<SentencePieceTokenizer>>
SentencePieceTokenizer::Load(absl::string_view model,
                             const TokenizerConfig& config,
                             const std::string& where) {
  std::string error;
  std::unique_ptr<SentencePieceModel> parsed =
      SentencePieceModel::Parse(ToStd(model), &error);
  if (parsed == nullptr) {
    const std::string message =
        absl::StrCat(where, ": no SentencePiece model: ", error);
    return SentencePieceModel::IsBuiltIn() ? absl::InvalidArgumentError(message)
                                           : absl::UnimplementedError(message);
  }
  std::unique_ptr<SentencePieceTokenizer> tokenizer(
      new SentencePieceTokenizer(std::move(parsed)));
  absl::Status status = tokenizer->AddTokens(config, where);
  if (status.ok()) status = tokenizer->SetConfig(config, where);
  if (!status.ok()) return status;
  tokenizer->by_word_ = tokenizer->WordsAreApart();
  return tokenizer;
}

absl::Status SentencePieceTokenizer::AddTokens(const TokenizerConfig& config,
                                               const std::string& where) {
  for (const AddedToken& token : config.added_tokens) {
    const bool known =
        token.id < model_->size() && model_->PieceOf(token.id) == token.content;
    const bool is_new =
        token.id >= model_->size() && model_->IdOf(ToStd(token.content)) < 0;
    if ((!known && !is_new) || !added_.Add(token)) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": added token ", token.id, ", ",
                       Quote(token.content), ", contradicts another token"));
    }
  }
  for (int id = 0; id < model_->size(); ++id) {
    // The library looks for pieces at every place of a text, too.
    if (model_->PieceOf(id).size() > kMaxAddedTokenBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": piece ", id, " has ", model_->PieceOf(id).size(),
          " bytes, expected at most ", kMaxAddedTokenBytes));
    }
    if (!model_->IsControl(id) && !model_->IsUnknown(id)) continue;
    if (added_.Find(id) != nullptr) continue;
    AddedToken token;
    token.id = id;
    token.content = model_->PieceOf(id);
    token.special = true;
    added_.Add(token);
  }
  return absl::OkStatus();
}

absl::Status SentencePieceTokenizer::SetConfig(const TokenizerConfig& config,
                                               const std::string& where) {
  if (model_->bos_id() >= 0) bos_id_ = model_->bos_id();
  if (model_->eos_id() >= 0) eos_id_ = model_->eos_id();
  absl::Status status = FindBosAndEos(config, where, *this, &bos_id_, &eos_id_);
  // As transformers' Llama tokenizer has it where the config is silent.
  add_bos_ = config.add_bos_token.value_or(true);
  add_eos_ = config.add_eos_token.value_or(false);
  return status;
}

// A space stands as kSpace in pieces and in front of every text. Where no piece
// has it behind another character, none reaches over the space between two
// words, so that each word, with the space that the library puts in front of
// it, gives the ids that it gives inside the text. For BPE alone, whose scores
// are whole numbers: a unigram model adds scores up along the text, and
// rounding may decide.
bool SentencePieceTokenizer::WordsAreApart() const {
  for (int id = 0; id < model_->size(); ++id) {
    const absl::string_view piece = model_->PieceOf(id);
    size_t at = 0;
    while (absl::StartsWith(piece.substr(at), kSpace)) at += kSpaceBytes;
    if (absl::StrContains(piece.substr(at), kSpace)) return false;
    const float score = model_->ScoreOf(id);
    if (score != std::trunc(score)) return false;
  }
  const int space = model_->IdOf(kSpace);
  std::vector<int> ids;
  std::string error;
  return space >= 0 && !model_->IsUnknown(space) &&
         model_->Encode("x", &ids, &error) && !ids.empty() &&
         absl::StartsWith(model_->PieceOf(ids[0]), kSpace);
}

absl::Status SentencePieceTokenizer::EncodeText(
    absl::string_view text, WordCache* cache, std::vector<int32_t>* ids) const {
  // No normalization makes a space of these, or composes a space with them.
  constexpr uint32_t kBefore = kLetters | kNumbers;
  constexpr uint32_t kBehind = CategoryBits({kLu, kLl, kLt, kLo});
  size_t begin = 0;
  bool word_ends = false;
  for (size_t at = 0; by_word_ && at < text.size();) {
    uint32_t code = 0, next = 0;
    const ScannedChar c = ScanChar(text, at, &code);
    if (code == ' ' && word_ends && at + 1 < text.size() &&
        ScanChar(text, at + 1, &next).char_class.In(kBehind)) {
      absl::Status status =
          EncodeWord(text.substr(begin, at - begin), cache, ids);
      if (!status.ok()) return status;
      begin = at + 1;
    }
    word_ends = c.char_class.In(kBefore) || (code > 0x20 && code < 0x7F);
    at += c.bytes;
  }
  return EncodeWord(text.substr(begin), cache, ids);
}

absl::Status SentencePieceTokenizer::EncodeWord(
    absl::string_view word, WordCache* cache, std::vector<int32_t>* ids) const {
  WordCache::Slot* slot = nullptr;
  if (!word.empty() && word.size() <= WordCache::kMaxBytes) {
    slot = &cache->SlotOf(word);
    if (slot->Holds(word)) {
      ids->insert(ids->end(), slot->ids().begin(), slot->ids().end());
      return absl::OkStatus();
    }
  }
  std::vector<int> pieces;
  std::string error;
  if (!model_->Encode(ToStd(word), &pieces, &error)) {
    return absl::InternalError(absl::StrCat("SentencePiece: ", error));
  }
  ids->insert(ids->end(), pieces.begin(), pieces.end());
  if (slot != nullptr) slot->Set(word, pieces);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> SentencePieceTokenizer::Encode(
    absl::string_view text, const EncodeOptions& options) const {
  absl::Status status = CheckText(text);
  if (!status.ok()) return status;
  std::vector<int32_t> ids;
  ScratchPool<WordCache>::Loan cache(caches_);
  if (options.add_special_tokens && add_bos_ && bos_id_.has_value()) {
    ids.push_back(*bos_id_);
  }
  for (const Stretch& stretch : added_.matcher().Split(text, options)) {
    if (stretch.id >= 0) {
      ids.push_back(stretch.id);
      continue;
    }
    status = EncodeText(text.substr(stretch.begin, stretch.end - stretch.begin),
                        &*cache, &ids);
    if (!status.ok()) return status;
  }
  if (options.add_special_tokens && add_eos_ && eos_id_.has_value()) {
    ids.push_back(*eos_id_);
  }
  return ids;
}

std::string SentencePieceTokenizer::Decode(absl::Span<const int32_t> ids,
                                           bool skip_special_tokens) const {
  std::string text;
  std::vector<int> pieces;
  const auto flush = [&] {
    if (!pieces.empty()) text += model_->Decode(pieces);
    pieces.clear();
  };
  for (const int32_t id : ids) {
    const AddedToken* added = added_.Find(id);
    if (added != nullptr && added->special && skip_special_tokens) continue;
    if (added != nullptr && !model_->IsUnknown(id)) {
      flush();
      text += added->content;
    } else if (id >= 0 && id < model_->size()) {
      pieces.push_back(id);
    }
  }
  flush();
  return text;
}

int32_t SentencePieceTokenizer::vocab_size() const {
  return std::max<int32_t>(model_->size(), added_.size());
}

std::optional<int32_t> SentencePieceTokenizer::IdOf(
    absl::string_view token) const {
  if (const std::optional<int32_t> id = added_.IdOf(token)) return id;
  const int id = model_->IdOf(ToStd(token));
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

std::string SentencePieceTokenizer::TokenOf(int32_t id) const {
  if (const AddedToken* added = added_.Find(id)) return added->content;
  return id >= 0 && id < model_->size() ? model_->PieceOf(id) : std::string();
}

bool SentencePieceTokenizer::IsSpecial(int32_t id) const {
  const AddedToken* added = added_.Find(id);
  return added != nullptr && added->special;
}

}  // namespace espalier::internal
