#include "espalier/io/internal/unicode.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "espalier/io/internal/char_class.h"
#include "espalier/io/internal/unicode_tables.h"
#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

namespace {

// Hangul syllables by arithmetic (Unicode, chapter 3.12).
constexpr uint32_t kSBase = 0xAC00, kLBase = 0x1100, kVBase = 0x1161,
                   kTBase = 0x11A7;
constexpr uint32_t kLCount = 19, kVCount = 21, kTCount = 28;
constexpr uint32_t kSCount = kLCount * kVCount * kTCount;
struct Char {
  uint32_t code = 0;
  uint8_t combining_class = 0;
};

// The table's entry whose range holds `code`; null when there is none.
template <typename Range>
const Range* FindRange(const Range* ranges, int count, uint32_t code) {
  const Range* const end = ranges + count;
  const Range* found = std::lower_bound(
      ranges, end, code,
      [](const Range& range, uint32_t c) { return range.last < c; });
  return found != end && found->first <= code ? found : nullptr;
}

uint8_t CombiningClassOf(uint32_t code) {
  const CombiningClass* found =
      FindRange(kCombiningClasses, kNumCombiningClasses, code);
  return found == nullptr ? 0 : found->combining_class;
}

void Decompose(uint32_t code, std::vector<Char>* chars) {
  if (code - kSBase < kSCount) {
    const uint32_t index = code - kSBase;
    chars->push_back({kLBase + index / (kVCount * kTCount), 0});
    chars->push_back({kVBase + index / kTCount % kVCount, 0});
    if (index % kTCount != 0) {
      chars->push_back({kTBase + index % kTCount, 0});
    }
    return;
  }
  const Decomposition* const end = kDecompositions + kNumDecompositions;
  const Decomposition* found = std::lower_bound(
      kDecompositions, end, code,
      [](const Decomposition& row, uint32_t c) { return row.code < c; });
  if (found == end || found->code != code) {
    chars->push_back({code, CombiningClassOf(code)});
    return;
  }
  Decompose(found->first, chars);  // at most 3 deep
  if (found->second != 0) Decompose(found->second, chars);
}

// 0 when the two do not compose.
uint32_t Compose(uint32_t first, uint32_t second) {
  if (first - kLBase < kLCount && second - kVBase < kVCount) {
    return kSBase + ((first - kLBase) * kVCount + (second - kVBase)) * kTCount;
  }
  if (first - kSBase < kSCount && (first - kSBase) % kTCount == 0 &&
      second - kTBase - 1 < kTCount - 1) {
    return first + (second - kTBase);
  }
  const auto pair_of = [](uint16_t index) {
    return std::pair(kDecompositions[index].first,
                     kDecompositions[index].second);
  };
  const std::pair<uint32_t, uint32_t> wanted(first, second);
  const uint16_t* const end = kCompositions + kNumCompositions;
  const uint16_t* found = std::lower_bound(
      kCompositions, end, wanted,
      [&](uint16_t index, const std::pair<uint32_t, uint32_t>& pair) {
        return pair_of(index) < pair;
      });
  if (found == end || pair_of(*found) != wanted) return 0;
  return kDecompositions[*found].code;
}

void SortMarks(std::vector<Char>* chars) {
  for (size_t begin = 0; begin < chars->size();) {
    if ((*chars)[begin].combining_class == 0) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < chars->size() && (*chars)[end].combining_class != 0) ++end;
    std::stable_sort(chars->begin() + static_cast<ptrdiff_t>(begin),
                     chars->begin() + static_cast<ptrdiff_t>(end),
                     [](const Char& a, const Char& b) {
                       return a.combining_class < b.combining_class;
                     });
    begin = end;
  }
}

void ComposeAll(std::vector<Char>* chars) {
  constexpr size_t kNone = static_cast<size_t>(-1);
  size_t starter = kNone;
  int last_class = -1;  // of the last kept character behind the starter
  size_t kept = 0;
  for (size_t i = 0; i < chars->size(); ++i) {
    const Char c = (*chars)[i];
    // Blocked when a character between has the same class, or a higher one.
    const bool blocked = last_class >= c.combining_class;
    const uint32_t composed = starter == kNone || blocked
                                  ? 0
                                  : Compose((*chars)[starter].code, c.code);
    if (composed != 0) {
      (*chars)[starter].code = composed;
      continue;
    }
    if (c.combining_class == 0) {
      starter = kept;
      last_class = -1;
    } else {
      last_class = c.combining_class;
    }
    (*chars)[kept++] = c;
  }
  chars->resize(kept);
}

// Composes text[0..] and appends it.
void AppendComposed(absl::string_view text, std::string* composed) {
  std::vector<Char> chars;
  chars.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    uint32_t code = 0;
    at += ScanChar(text, at, &code).bytes;
    Decompose(code, &chars);
  }
  SortMarks(&chars);
  ComposeAll(&chars);
  for (const Char& c : chars) AppendUtf8(c.code, composed);
}

// Where a character that composition may change or move stands at or after
// `at`; *starter is where the character before it begins. text.size() when
// there is none.
size_t FindComposable(absl::string_view text, size_t at, size_t* starter) {
  while (at < text.size()) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      *starter = at++;
      continue;
    }
    uint32_t code = 0;
    const ScannedChar c = ScanChar(text, at, &code);
    if (c.char_class.may_compose()) return at;
    *starter = at;
    at += c.bytes;
  }
  return at;
}

}  // namespace

bool IsWhiteSpace(uint32_t code) { return ClassOf(code).In(kSpaces); }

bool IsWordChar(uint32_t code) { return ClassOf(code).is_word(); }

bool IsSurelyNfc(absl::string_view text) {
  size_t starter = 0;
  return FindComposable(text, 0, &starter) == text.size();
}

// Only stretches of composable characters, each with the character before it,
// need the work: what stands between them neither changes nor moves.
std::string ToNfc(absl::string_view text) {
  std::string composed;
  composed.reserve(text.size());
  size_t covered = 0;
  for (;;) {
    size_t begin = covered;
    size_t end = FindComposable(text, covered, &begin);
    if (end == text.size()) break;
    while (end < text.size()) {
      uint32_t code = 0;
      const ScannedChar c = ScanChar(text, end, &code);
      if (!c.char_class.may_compose()) break;
      end += c.bytes;
    }
    composed.append(text.data() + covered, begin - covered);
    AppendComposed(text.substr(begin, end - begin), &composed);
    covered = end;
  }
  composed.append(text.data() + covered, text.size() - covered);
  return composed;
}

}  // namespace espalier::internal
