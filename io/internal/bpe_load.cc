#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "espalier/io/internal/added_tokens.h"
#include "espalier/io/internal/bpe.h"
#include "espalier/io/internal/byte_level.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

namespace {

// Ids size a table, so they are bounded by the number of tokens, too; a
// vocabulary cut down to a few keeps the ids of the whole one.
constexpr int64_t kMaxFreeIds = int64_t{1} << 18;

}  // namespace

absl::StatusOr<Bpe> Bpe::Load(const JsonObject& model, bool byte_level) {
  Bpe bpe;
  bpe.byte_level_ = byte_level;
  double dropout = 0;
  std::string prefix, suffix, unknown;
  for (const absl::Status& status :
       {model.GetOptional("dropout", &dropout),
        model.GetOptional("continuing_subword_prefix", &prefix),
        model.GetOptional("end_of_word_suffix", &suffix),
        model.GetOptional("unk_token", &unknown),
        model.GetOptional("byte_fallback", &bpe.byte_fallback_),
        model.GetOptional("fuse_unk", &bpe.fuse_unknown_),
        model.GetOptional("ignore_merges", &bpe.ignore_merges_)}) {
    if (!status.ok()) return status;
  }
  for (const auto& [key, used] :
       {std::pair("dropout", dropout != 0),
        std::pair("continuing_subword_prefix", !prefix.empty()),
        std::pair("end_of_word_suffix", !suffix.empty())}) {
    if (used) {
      return absl::UnimplementedError(
          absl::StrCat(model.where(), ": model.", key, " is not supported"));
    }
  }
  absl::Status status = bpe.LoadVocabulary(model);
  if (!status.ok()) return status;
  if (!unknown.empty()) {
    bpe.unknown_id_ = bpe.IdOf(unknown);
    if (bpe.unknown_id_ < 0) {
      return model.Error("unk_token", "is not in the vocabulary");
    }
  }
  bpe.FillCharTables();
  status = bpe.LoadMerges(model);
  if (!status.ok()) return status;
  return bpe;
}

absl::Status Bpe::LoadVocabulary(const JsonObject& model) {
  const JsonValue* vocab = model.GetValue("vocab");
  if (vocab == nullptr || vocab->AsObject() == nullptr) {
    return model.Error("vocab", "is no object");
  }
  const JsonValue::Object& members = *vocab->AsObject();
  int64_t size = 0;
  for (const JsonMember& member : members) {
    const int64_t* id = member.value.AsInt();
    if (id == nullptr || *id < 0 || *id > kMaxTokenId) {
      return model.Error(
          "vocab",
          absl::StrCat("gives ", Quote(member.key),
                       " an id that is no integer from 0 to ", kMaxTokenId));
    }
    size = std::max(size, *id + 1);
  }
  if (size - static_cast<int64_t>(members.size()) > kMaxFreeIds) {
    return model.Error(
        "vocab",
        absl::StrCat("has ids up to ", size - 1, " for ", members.size(),
                     " tokens, expected at most ", kMaxFreeIds, " free ones"));
  }
  tokens_.resize(static_cast<size_t>(size));
  ids_.reserve(members.size());
  for (const JsonMember& member : members) {
    const int32_t id = static_cast<int32_t>(*member.value.AsInt());
    std::string& token = tokens_[static_cast<size_t>(id)];
    if (member.key.empty() || !token.empty()) {
      return model.Error(
          "vocab", absl::StrCat("gives id ", id, " to ", Quote(member.key),
                                " and to ", Quote(token)));
    }
    token = member.key;
    ids_.emplace(token, id);
  }
  return absl::OkStatus();
}

absl::Status Bpe::LoadMerges(const JsonObject& model) {
  const JsonValue* merges = model.GetValue("merges");
  if (merges == nullptr || merges->AsArray() == nullptr) {
    return model.Error("merges", "is no array");
  }
  const JsonValue::Array& items = *merges->AsArray();
  for (size_t i = 0; i < items.size(); ++i) {
    absl::Status status = AddMerge(items[i], static_cast<int32_t>(i));
    if (!status.ok()) {
      return model.Error("merges",
                         absl::StrCat("item ", i, " ", status.message()));
    }
  }
  return absl::OkStatus();
}

// An item is "left right", or ["left", "right"].
absl::Status Bpe::AddMerge(const JsonValue& item, int32_t rank) {
  absl::string_view left, right;
  if (const std::string* text = item.AsString()) {
    const size_t space = text->find(' ');
    if (space == std::string::npos ||
        text->find(' ', space + 1) != std::string::npos) {
      return absl::InvalidArgumentError("is not two tokens");
    }
    left = absl::string_view(*text).substr(0, space);
    right = absl::string_view(*text).substr(space + 1);
  } else if (const JsonValue::Array* pair = item.AsArray();
             pair != nullptr && pair->size() == 2 && (*pair)[0].AsString() &&
             (*pair)[1].AsString()) {
    left = *(*pair)[0].AsString();
    right = *(*pair)[1].AsString();
  } else {
    return absl::InvalidArgumentError("is not two tokens");
  }
  const int32_t left_id = IdOf(left);
  const int32_t right_id = IdOf(right);
  const int32_t id = IdOf(absl::StrCat(left, right));
  if (left_id < 0 || right_id < 0 || id < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "(", Quote(left), ", ", Quote(right), ") is not in the vocabulary"));
  }
  InsertMerge(left_id, right_id, rank, id);
  return absl::OkStatus();
}

absl::StatusOr<Bpe> Bpe::FromRanks(const std::vector<std::string>& tokens,
                                   const std::string& where) {
  Bpe bpe;
  bpe.byte_level_ = true;
  bpe.ignore_merges_ = true;
  absl::Status status = bpe.LoadRanks(tokens, where);
  if (!status.ok()) return status;
  return bpe;
}

absl::Status Bpe::LoadRanks(const std::vector<std::string>& tokens,
                            const std::string& where) {
  tokens_.reserve(tokens.size());
  ids_.reserve(tokens.size());
  whole_words_.reserve(tokens.size());
  for (const std::string& token : tokens) {
    const int32_t id = size();
    tokens_.push_back(BytesToChars(token));
    ids_.emplace(tokens_.back(), id);
    if (token.empty() || !whole_words_.try_emplace(token, id).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": token ", id, ", ", Quote(token),
                       ", is empty or stands twice"));
    }
  }
  FillCharTables();
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    if (byte_ids_[byte] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": no token for byte ", byte));
    }
  }
  for (int32_t id = 0; id < size(); ++id) {
    const absl::string_view token = tokens[static_cast<size_t>(id)];
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = whole_words_.find(token.substr(0, cut));
      if (left == whole_words_.end()) continue;
      const auto right = whole_words_.find(token.substr(cut));
      if (right == whole_words_.end()) continue;
      InsertMerge(left->second, right->second, id, id);
    }
  }
  return absl::OkStatus();
}

int32_t Bpe::EndSymbol(absl::string_view token, bool first) const {
  const size_t at = first ? 0 : CharBegin(token, token.size() - 1);
  const Utf8Char c = DecodeUtf8(token, at);
  if (c.bytes == 0) return -1;
  if (!byte_level_) return IdOf(token.substr(at, c.bytes));
  const int byte = ByteOfChar(c.code);
  return byte < 0 ? -1 : byte_ids_[static_cast<size_t>(byte)];
}

size_t Bpe::JoinBit(int32_t left, int32_t right) const {
  const uint64_t hash = static_cast<uint32_t>(left) * uint64_t{0x9E3779B1} +
                        static_cast<uint32_t>(right) * uint64_t{0x85EBCA77};
  return static_cast<size_t>((hash ^ hash >> 15) * 0xC2B2AE3D27D4EB4F >>
                             (64 - kLogJoinBits));
}

// A token of several characters begins and ends with other symbols than
// itself; but <0xXX> and the unknown token are symbols too, as they are.
void Bpe::InsertMerge(int32_t left, int32_t right, int32_t rank, int32_t id) {
  merges_.Insert(left, right,
                 static_cast<uint64_t>(static_cast<uint32_t>(rank)) << 32 |
                     static_cast<uint32_t>(id));
  for (const int32_t last : {left, EndSymbol(TokenOf(left), false)}) {
    for (const int32_t first : {right, EndSymbol(TokenOf(right), true)}) {
      if (last < 0 || first < 0) continue;
      const size_t bit = JoinBit(last, first);
      joins_[bit / 64] |= uint64_t{1} << (bit % 64);
    }
  }
}

void Bpe::FillCharTables() {
  for (uint32_t byte = 0; byte < 256; ++byte) {
    std::string token;
    if (byte_level_) {
      AppendUtf8(CharOfByte(static_cast<uint8_t>(byte)), &token);
    } else {
      token = absl::StrFormat("<0x%02X>", byte);
    }
    byte_ids_[byte] = IdOf(token);
  }
  for (uint32_t code = 0; code < ascii_ids_.size(); ++code) {
    ascii_ids_[code] = IdOf(std::string(1, static_cast<char>(code)));
  }
  if (!ignore_merges_ || !whole_words_.empty()) return;
  whole_words_.reserve(tokens_.size());
  for (int32_t id = 0; id < size(); ++id) {
    const std::string& token = tokens_[static_cast<size_t>(id)];
    if (token.empty()) continue;
    whole_words_.emplace(byte_level_ ? CharsToBytes(token) : token, id);
  }
}

int32_t Bpe::IdOf(absl::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

absl::string_view Bpe::TokenOf(int32_t id) const {
  return id >= 0 && id < size() ? tokens_[static_cast<size_t>(id)]
                                : absl::string_view();
}

}  // namespace espalier::internal
