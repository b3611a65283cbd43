#include "espalier/io/internal/bpe.h"

#include <algorithm>
#include <queue>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "espalier/io/internal/byte_level.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

namespace {

// Ids size a table, so they are bounded.
constexpr int64_t kMaxId = (int64_t{1} << 22) - 1;
// Up to here looking at every pair again is faster than a heap.
constexpr size_t kShortWord = 24;

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 |
         static_cast<uint32_t>(right);
}

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
  if (status.ok()) status = bpe.LoadMerges(model);
  if (!status.ok()) return status;
  if (!unknown.empty()) {
    bpe.unknown_id_ = bpe.IdOf(unknown);
    if (bpe.unknown_id_ < 0) {
      return model.Error("unk_token", "is not in the vocabulary");
    }
  }
  bpe.FillCharTables();
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
    if (id == nullptr || *id < 0 || *id > kMaxId) {
      return model.Error(
          "vocab",
          absl::StrCat("gives ", Quote(member.key),
                       " an id that is no integer from 0 to ", kMaxId));
    }
    size = std::max(size, *id + 1);
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
  merges_.reserve(items.size());
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
  merges_[PairKey(left_id, right_id)] = {rank, id};
  return absl::OkStatus();
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
}

int32_t Bpe::IdOf(absl::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

absl::string_view Bpe::TokenOf(int32_t id) const {
  return id >= 0 && id < size() ? tokens_[static_cast<size_t>(id)]
                                : absl::string_view();
}

// Byte tokens overtake a pending unknown one, as in the library.
absl::Status Bpe::AddUnknown(absl::string_view character, bool drop_unknown,
                             int32_t* pending, Symbols* symbols) const {
  if (byte_fallback_ && !byte_level_ &&
      std::all_of(character.begin(), character.end(), [&](char c) {
        return byte_ids_[static_cast<uint8_t>(c)] >= 0;
      })) {
    for (const char c : character) {
      symbols->emplace_back().id = byte_ids_[static_cast<uint8_t>(c)];
    }
    return absl::OkStatus();
  }
  if (unknown_id_ < 0) {
    if (drop_unknown) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("no token for ", Quote(character)));
  }
  if (*pending >= 0 && !fuse_unknown_) symbols->emplace_back().id = *pending;
  *pending = unknown_id_;
  return absl::OkStatus();
}

absl::Status Bpe::Split(absl::string_view word, bool drop_unknown,
                        Symbols* symbols) const {
  int32_t pending = -1;  // an unknown token not yet added
  for (size_t at = 0; at < word.size();) {
    const uint8_t byte = static_cast<uint8_t>(word[at]);
    size_t bytes = 1;
    int32_t id = -1;
    if (byte_level_) {
      id = byte_ids_[byte];
    } else if (byte < ascii_ids_.size()) {
      id = ascii_ids_[byte];
    } else {
      bytes = std::max<size_t>(DecodeUtf8(word, at).bytes, 1);
      id = IdOf(word.substr(at, bytes));
    }
    if (id >= 0) {
      if (pending >= 0) symbols->emplace_back().id = pending;
      pending = -1;
      symbols->emplace_back().id = id;
    } else {
      absl::Status status =
          AddUnknown(word.substr(at, bytes), drop_unknown, &pending, symbols);
      if (!status.ok()) return status;
    }
    at += bytes;
  }
  if (pending >= 0) symbols->emplace_back().id = pending;
  const int32_t count = static_cast<int32_t>(symbols->size());
  for (int32_t i = 0; i < count; ++i) {
    Symbol& symbol = (*symbols)[static_cast<size_t>(i)];
    symbol.previous = i - 1;
    symbol.next = i + 1 < count ? i + 1 : -1;
  }
  return absl::OkStatus();
}

// The merge of a symbol with its successor; null when there is none.
const Bpe::Merge* Bpe::FindMerge(const Symbols& symbols, int32_t left) const {
  const Symbol& symbol = symbols[static_cast<size_t>(left)];
  if (symbol.next < 0) return nullptr;
  const auto found = merges_.find(
      PairKey(symbol.id, symbols[static_cast<size_t>(symbol.next)].id));
  return found == merges_.end() ? nullptr : &found->second;
}

// The symbol takes in its successor.
void Bpe::Join(Symbols* symbols, int32_t left, int32_t id) {
  Symbol& symbol = (*symbols)[static_cast<size_t>(left)];
  Symbol& next = (*symbols)[static_cast<size_t>(symbol.next)];
  next.merged = true;
  symbol.id = id;
  symbol.next = next.next;
  if (symbol.next >= 0) {
    (*symbols)[static_cast<size_t>(symbol.next)].previous = left;
  }
}

void Bpe::MergeShort(Symbols* symbols) const {
  for (;;) {
    const Merge* best = nullptr;
    int32_t place = -1;
    for (int32_t i = 0; i >= 0; i = (*symbols)[static_cast<size_t>(i)].next) {
      const Merge* merge = FindMerge(*symbols, i);
      if (merge != nullptr && (best == nullptr || merge->rank < best->rank)) {
        best = merge;
        place = i;
      }
    }
    if (best == nullptr) return;
    Join(symbols, place, best->id);
  }
}

void Bpe::MergeLong(Symbols* symbols) const {
  struct Candidate {
    int32_t rank;
    int32_t place;
    int32_t id;
  };
  const auto later = [](const Candidate& a, const Candidate& b) {
    return std::pair(a.rank, a.place) > std::pair(b.rank, b.place);
  };
  std::vector<Candidate> first;
  for (int32_t i = 0; i < static_cast<int32_t>(symbols->size()); ++i) {
    if (const Merge* merge = FindMerge(*symbols, i)) {
      first.push_back({merge->rank, i, merge->id});
    }
  }
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(later)> queue(
      later, std::move(first));
  const auto push = [&](int32_t place) {
    if (place < 0) return;
    if (const Merge* merge = FindMerge(*symbols, place)) {
      queue.push({merge->rank, place, merge->id});
    }
  };
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    if ((*symbols)[static_cast<size_t>(top.place)].merged) continue;
    // A neighbour may have changed since the candidate was queued.
    const Merge* merge = FindMerge(*symbols, top.place);
    if (merge == nullptr || merge->id != top.id) continue;
    Join(symbols, top.place, top.id);
    push((*symbols)[static_cast<size_t>(top.place)].previous);
    push(top.place);
  }
}

absl::Status Bpe::Encode(absl::string_view word, bool drop_unknown,
                         std::vector<int32_t>* ids) const {
  if (word.empty()) return absl::OkStatus();
  if (ignore_merges_) {
    const int32_t id = byte_level_ ? IdOf(BytesToChars(word)) : IdOf(word);
    if (id >= 0) {
      ids->push_back(id);
      return absl::OkStatus();
    }
  }
  Symbols symbols;
  symbols.reserve(word.size());
  absl::Status status = Split(word, drop_unknown, &symbols);
  if (!status.ok() || symbols.empty()) return status;
  if (symbols.size() <= kShortWord) {
    MergeShort(&symbols);
  } else {
    MergeLong(&symbols);
  }
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    ids->push_back(symbols[static_cast<size_t>(i)].id);
  }
  return absl::OkStatus();
}

}  // namespace espalier::internal
