#include "espalier/io/internal/tiktoken_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/internal/char_class.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

namespace {

// Merges are found by cutting a token at every byte.
constexpr size_t kMaxTokenBytes = 1024;

absl::string_view FirstLine(absl::string_view text) {
  return text.substr(0, text.find('\n'));
}

// "base64 rank" to its parts.
bool ParseLine(absl::string_view line, std::string* token, uint32_t* rank) {
  const size_t space = line.find(' ');
  return space != absl::string_view::npos && space > 0 &&
         absl::Base64Unescape(line.substr(0, space), token) &&
         absl::SimpleAtoi(line.substr(space + 1), rank);
}

}  // namespace

bool LooksLikeRanks(absl::string_view text) {
  std::string token;
  uint32_t rank = 0;
  return ParseLine(FirstLine(text), &token, &rank);
}

absl::StatusOr<std::vector<std::string>> ParseRanks(absl::string_view text,
                                                    const std::string& where) {
  std::vector<std::string> tokens(
      static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + 1);
  size_t num_tokens = 0;
  for (size_t number = 1; !text.empty(); ++number) {
    const absl::string_view line = FirstLine(text);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty() || line == "\r") continue;
    std::string token;
    uint32_t rank = 0;
    const auto bad = [&](absl::string_view what) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": line ", number, ", ", Quote(line), ", ", what));
    };
    if (!ParseLine(line, &token, &rank) || token.empty()) {
      return bad("is no base64 token and rank");
    }
    if (token.size() > kMaxTokenBytes) return bad("has too long a token");
    if (rank >= tokens.size() || rank > static_cast<uint32_t>(kMaxTokenId) ||
        !tokens[rank].empty()) {
      return bad("has a rank that stands twice or beyond the tokens");
    }
    tokens[rank] = std::move(token);
    ++num_tokens;
  }
  tokens.resize(num_tokens);
  for (size_t rank = 0; rank < num_tokens; ++rank) {
    if (tokens[rank].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": rank ", rank, " is missing, of ", num_tokens));
    }
  }
  return tokens;
}

absl::Status CutLongText(
    absl::string_view text,
    absl::FunctionRef<absl::Status(absl::string_view)> on_piece) {
  constexpr size_t kMaxChars = 400'000;
  constexpr size_t kMaxRun = 25'000;
  size_t begin = 0;      // of the piece
  size_t num_chars = 0;  // since the last cut of the first kind
  size_t run = 0;
  bool in_space = false;
  for (size_t at = 0; at < text.size();) {
    uint32_t code = 0;
    const ScannedChar c = ScanChar(text, at, &code);
    // As Python's str.isspace has it.
    const bool space =
        c.char_class.In(kSpaces) || (code >= 0x1C && code <= 0x1F);
    const bool cut = num_chars == kMaxChars;
    run = cut || num_chars == 0 || space != in_space ? 1 : run + 1;
    in_space = space;
    if (cut || run > kMaxRun) {
      absl::Status status = on_piece(text.substr(begin, at - begin));
      if (!status.ok()) return status;
      begin = at;
      run = 1;
    }
    num_chars = cut ? 1 : num_chars + 1;
    at += c.bytes;
  }
  return begin == text.size() ? absl::OkStatus() : on_piece(text.substr(begin));
}

TiktokenTokenizer::TiktokenTokenizer(const TiktokenFamily& family,
                                     PreTokenizer pre_tokenizer, Bpe bpe,
                                     std::vector<std::string> tokens)
    : family_(family),
      words_(std::move(pre_tokenizer), std::move(bpe)),
      tokens_(std::move(tokens)) {}

absl::StatusOr<std::unique_ptr<TiktokenTokenizer>> TiktokenTokenizer::Load(
    absl::string_view ranks, const TokenizerConfig& config,
    absl::string_view family_name, const std::string& where) {
  absl::StatusOr<std::vector<std::string>> tokens = ParseRanks(ranks, where);
  if (!tokens.ok()) return tokens.status();
  const TiktokenFamily* family =
      family_name.empty() ? GuessTiktokenFamily(config, tokens->size())
                          : FindTiktokenFamily(family_name);
  if (family == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": ",
        family_name.empty()
            ? absl::StrCat(tokens->size(), " ranks",
                           config.tokenizer_class.empty() ? "" : " and class ",
                           config.tokenizer_class)
            : Quote(family_name),
        " name no family of tokenizers; known: ", TiktokenFamilyNames()));
  }
  absl::StatusOr<PreTokenizer> pre_tokenizer =
      PreTokenizer::ByExpression(family->expression->expression);
  if (!pre_tokenizer.ok()) return pre_tokenizer.status();
  absl::StatusOr<Bpe> bpe = Bpe::FromRanks(*tokens, where);
  if (!bpe.ok()) return bpe.status();
  std::unique_ptr<TiktokenTokenizer> tokenizer(new TiktokenTokenizer(
      *family, *std::move(pre_tokenizer), *std::move(bpe), *std::move(tokens)));
  absl::Status status = tokenizer->AddSpecialTokens(config, where);
  if (status.ok()) status = tokenizer->SetConfig(config, where);
  if (!status.ok()) return status;
  return tokenizer;
}

absl::Status TiktokenTokenizer::AddSpecialTokens(const TokenizerConfig& config,
                                                 const std::string& where) {
  std::vector<AddedToken> tokens = config.added_tokens;
  const int32_t num_ranks = static_cast<int32_t>(tokens_.size());
  if (tokens.empty() && num_ranks == family_.num_ranks) {
    family_.add_special(&tokens);
  }
  for (const AddedToken& token : tokens) {
    if (token.id < num_ranks || !added_.Add(token)) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": added token ", token.id, ", ",
                       Quote(token.content), ", contradicts another token"));
    }
  }
  if (num_ranks != family_.num_ranks) return absl::OkStatus();
  for (int32_t id = num_ranks; id < family_.reserved_end; ++id) {
    if (added_.Find(id) != nullptr) continue;
    AddedToken reserved;
    reserved.id = id;
    reserved.content = absl::StrCat("<|reserved_token_", id, "|>");
    reserved.special = true;
    added_.Add(reserved);
  }
  return absl::OkStatus();
}

absl::Status TiktokenTokenizer::SetConfig(const TokenizerConfig& config,
                                          const std::string& where) {
  if (family_.bos_token != nullptr) bos_id_ = IdOf(family_.bos_token);
  if (family_.eos_token != nullptr) eos_id_ = IdOf(family_.eos_token);
  absl::Status status = FindBosAndEos(config, where, *this, &bos_id_, &eos_id_);
  add_bos_ = config.add_bos_token.value_or(family_.add_bos);
  add_eos_ = config.add_eos_token.value_or(false);
  return status;
}

absl::Status TiktokenTokenizer::EncodePiece(absl::string_view piece,
                                            const EncodeOptions& options,
                                            WordEncoder::Call* call,
                                            std::vector<int32_t>* ids) const {
  for (const Stretch& stretch : added_.matcher().Split(piece, options)) {
    if (stretch.id >= 0) {
      ids->push_back(stretch.id);
      continue;
    }
    absl::Status status =
        call->Encode(piece.substr(stretch.begin, stretch.end - stretch.begin),
                     /*at_start=*/false, options.drop_unknown, ids);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> TiktokenTokenizer::Encode(
    absl::string_view text, const EncodeOptions& options) const {
  absl::Status status = CheckText(text);
  if (!status.ok()) return status;
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4);
  WordEncoder::Call call(words_);
  if (options.add_special_tokens && add_bos_ && bos_id_.has_value()) {
    ids.push_back(*bos_id_);
  }
  const auto encode = [&](absl::string_view piece) {
    return EncodePiece(piece, options, &call, &ids);
  };
  status = family_.cuts_long_text ? CutLongText(text, encode) : encode(text);
  if (!status.ok()) return status;
  if (options.add_special_tokens && add_eos_ && eos_id_.has_value()) {
    ids.push_back(*eos_id_);
  }
  return ids;
}

std::string TiktokenTokenizer::Decode(absl::Span<const int32_t> ids,
                                      bool skip_special_tokens) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (id >= 0 && static_cast<size_t>(id) < tokens_.size()) {
      bytes += tokens_[static_cast<size_t>(id)];
    } else if (const AddedToken* token = added_.Find(id);
               token != nullptr && !(skip_special_tokens && token->special)) {
      bytes += token->content;
    }
  }
  return ReplaceInvalidUtf8(bytes);
}

int32_t TiktokenTokenizer::vocab_size() const {
  return std::max(words_.bpe().size(), added_.size());
}

std::optional<int32_t> TiktokenTokenizer::IdOf(absl::string_view token) const {
  if (const std::optional<int32_t> id = added_.IdOf(token)) return id;
  const int32_t id = words_.bpe().IdOf(token);
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

std::string TiktokenTokenizer::TokenOf(int32_t id) const {
  const AddedToken* added = added_.Find(id);
  return added != nullptr ? added->content
                          : std::string(words_.bpe().TokenOf(id));
}

bool TiktokenTokenizer::IsSpecial(int32_t id) const {
  const AddedToken* added = added_.Find(id);
  return added != nullptr && added->special;
}

}  // namespace espalier::internal
