#include "espalier/io/internal/bpe.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/text.h"
#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

namespace {

// Up to here looking at every merge again is faster than a heap.
constexpr size_t kShortStretch = 64;

int32_t IdOfMerge(MergeValue value) { return static_cast<int32_t>(value); }

void Append(absl::Span<const int32_t> from, std::vector<int32_t>* to) {
  to->insert(to->end(), from.begin(), from.end());
}

}  // namespace

void BpeScratch::TrimTo(size_t symbols_kept) {
  if (symbols.capacity() <= symbols_kept) return;
  symbols = {};
  previous = {};
  next = {};
  merges = {};
  queue = {};
}

// Symbols gather in scratch->symbols until no merge can join the next one.
struct Bpe::Work {
  absl::string_view word;
  bool drop_unknown = false;
  bool cache_stretches = false;
  BpeScratch* scratch = nullptr;
  std::vector<int32_t>* ids = nullptr;

  size_t begin = 0;          // of the stretch
  int32_t pending = -1;      // an unknown token not yet among the symbols
  bool has_unknown = false;  // whether the stretch has bytes or unknown ones
  bool dropped = false;      // whether the word has
};

absl::Status Bpe::Encode(absl::string_view word, bool drop_unknown,
                         BpeScratch* scratch, std::vector<int32_t>* ids) const {
  if (word.empty()) return absl::OkStatus();
  Work work;
  work.word = word;
  work.drop_unknown = drop_unknown;
  work.scratch = scratch;
  work.ids = ids;
  const bool cache_word =
      (byte_level_ || ignore_merges_) && word.size() <= WordCache::kMaxBytes;
  work.cache_stretches = !cache_word && !ignore_merges_;
  if (!cache_word) return EncodeWord(&work);
  WordCache::Slot& slot = scratch->cache.SlotOf(word);
  if (slot.Holds(word)) {
    Append(slot.ids(), ids);
    return absl::OkStatus();
  }
  const size_t first = ids->size();
  absl::Status status = EncodeWord(&work);
  if (status.ok() && !work.dropped) {
    slot.Set(word, absl::MakeConstSpan(*ids).subspan(first));
  }
  return status;
}

absl::Status Bpe::EncodeWord(Work* work) const {
  const absl::string_view word = work->word;
  if (ignore_merges_) {
    const auto found = whole_words_.find(word);
    if (found != whole_words_.end()) {
      work->ids->push_back(found->second);
      return absl::OkStatus();
    }
  }
  std::vector<int32_t>& symbols = work->scratch->symbols;
  symbols.clear();
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
      AddSymbol(id, at, work);
    } else {
      absl::Status status = AddUnknown(at, bytes, work);
      if (!status.ok()) return status;
    }
    at += bytes;
  }
  if (work->pending >= 0) symbols.push_back(work->pending);
  Flush(word.size(), work);
  return absl::OkStatus();
}

// Appends a symbol of the vocabulary that stands at word[at].
void Bpe::AddSymbol(int32_t symbol, size_t at, Work* work) const {
  std::vector<int32_t>& symbols = work->scratch->symbols;
  if (work->pending >= 0) {
    symbols.push_back(work->pending);
    work->pending = -1;
  } else if (!symbols.empty() && !MayJoin(symbols.back(), symbol)) {
    Flush(at, work);
  }
  symbols.push_back(symbol);
}

// A character without a token. Byte tokens overtake a pending unknown one, as
// in the library.
absl::Status Bpe::AddUnknown(size_t at, size_t bytes, Work* work) const {
  std::vector<int32_t>& symbols = work->scratch->symbols;
  const absl::string_view character = work->word.substr(at, bytes);
  if (byte_fallback_ && !byte_level_ &&
      std::all_of(character.begin(), character.end(), [&](char c) {
        return byte_ids_[static_cast<uint8_t>(c)] >= 0;
      })) {
    for (size_t i = 0; i < bytes; ++i) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(character[i])];
      if (work->pending < 0 && !symbols.empty() &&
          !MayJoin(symbols.back(), id)) {
        Flush(at + i, work);
      }
      symbols.push_back(id);
      work->has_unknown = true;
    }
    return absl::OkStatus();
  }
  work->has_unknown = true;
  if (unknown_id_ < 0) {
    work->dropped = true;
    if (work->drop_unknown) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("no token for ", Quote(character)));
  }
  if (work->pending >= 0 && !fuse_unknown_) symbols.push_back(work->pending);
  work->pending = unknown_id_;
  return absl::OkStatus();
}

// Encodes the stretch, which ends before word[end], and begins the next.
void Bpe::Flush(size_t end, Work* work) const {
  BpeScratch* const scratch = work->scratch;
  const absl::string_view text =
      work->word.substr(work->begin, end - work->begin);
  if (scratch->symbols.size() <= 1) {
    Append(scratch->symbols, work->ids);
  } else if (!work->cache_stretches || work->has_unknown ||
             text.size() > WordCache::kMaxBytes) {
    Merge(scratch, work->ids);
  } else if (WordCache::Slot& slot = scratch->cache.SlotOf(text);
             slot.Holds(text)) {
    Append(slot.ids(), work->ids);
  } else {
    const size_t first = work->ids->size();
    Merge(scratch, work->ids);
    slot.Set(text, absl::MakeConstSpan(*work->ids).subspan(first));
  }
  scratch->symbols.clear();
  work->begin = end;
  work->has_unknown = false;
}

// Merges scratch->symbols, of which there are two or more.
void Bpe::Merge(BpeScratch* scratch, std::vector<int32_t>* ids) const {
  if (scratch->symbols.size() <= kShortStretch) {
    MergeShort(scratch, ids);
  } else {
    MergeLong(scratch, ids);
  }
}

void Bpe::MergeShort(BpeScratch* scratch, std::vector<int32_t>* ids) const {
  std::vector<int32_t>& symbols = scratch->symbols;
  MergeValue merges[kShortStretch];  // of a symbol with the next one
  size_t last = symbols.size() - 1;
  for (size_t i = 0; i < last; ++i) {
    merges[i] = merges_.Find(symbols[i], symbols[i + 1]);
  }
  while (last > 0) {
    size_t place = 0;
    for (size_t i = 1; i < last; ++i) {
      if (merges[i] < merges[place]) place = i;
    }
    scratch->num_steps += static_cast<int64_t>(last);
    if (merges[place] == kNoMerge) break;
    symbols[place] = IdOfMerge(merges[place]);
    std::copy(&symbols[place + 2], symbols.data() + last + 1,
              &symbols[place + 1]);
    std::copy(merges + place + 1, merges + last, merges + place);
    --last;
    if (place > 0) {
      merges[place - 1] = merges_.Find(symbols[place - 1], symbols[place]);
    }
    if (place < last) {
      merges[place] = merges_.Find(symbols[place], symbols[place + 1]);
    }
  }
  Append(absl::MakeConstSpan(symbols).first(last + 1), ids);
}

// Symbols form a list; a heap holds rank << 32 | place of their merges with
// the next one, among them some that have become stale.
void Bpe::MergeLong(BpeScratch* scratch, std::vector<int32_t>* ids) const {
  std::vector<int32_t>& symbols = scratch->symbols;
  std::vector<int32_t>& previous = scratch->previous;
  std::vector<int32_t>& next = scratch->next;
  std::vector<MergeValue>& merges = scratch->merges;
  std::vector<uint64_t>& queue = scratch->queue;
  const int32_t count = static_cast<int32_t>(symbols.size());
  const auto at = [](auto& list, int32_t i) -> auto& {
    return list[static_cast<size_t>(i)];
  };
  const auto key = [&](int32_t place) {
    return (at(merges, place) & ~uint64_t{0xFFFFFFFF}) |
           static_cast<uint32_t>(place);
  };
  previous.resize(symbols.size());
  next.resize(symbols.size());
  merges.resize(symbols.size());
  queue.clear();
  for (int32_t i = 0; i < count; ++i) {
    at(previous, i) = i - 1;
    at(next, i) = i + 1 < count ? i + 1 : -1;
    at(merges, i) = i + 1 < count
                        ? merges_.Find(at(symbols, i), at(symbols, i + 1))
                        : kNoMerge;
    if (at(merges, i) != kNoMerge) queue.push_back(key(i));
  }
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  const auto update = [&](int32_t place) {
    const int32_t right = at(next, place);
    at(merges, place) =
        right < 0 ? kNoMerge
                  : merges_.Find(at(symbols, place), at(symbols, right));
    if (at(merges, place) == kNoMerge) return;
    queue.push_back(key(place));
    std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };
  while (!queue.empty()) {
    ++scratch->num_steps;
    const uint64_t top = queue.front();
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    queue.pop_back();
    const int32_t place = static_cast<int32_t>(top);
    // A merged symbol has no merge; one that has changed has a later one.
    if (at(merges, place) == kNoMerge || key(place) != top) continue;
    const int32_t gone = at(next, place);
    at(symbols, place) = IdOfMerge(at(merges, place));
    at(merges, gone) = kNoMerge;
    at(next, place) = at(next, gone);
    if (at(next, place) >= 0) at(previous, at(next, place)) = place;
    if (at(previous, place) >= 0) update(at(previous, place));
    update(place);
  }
  for (int32_t i = 0; i >= 0; i = at(next, i)) ids->push_back(at(symbols, i));
}

}  // namespace espalier::internal
