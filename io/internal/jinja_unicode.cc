#include "espalier/io/internal/jinja_unicode.h"

#include <algorithm>

#include "espalier/io/internal/jinja_unicode_tables.h"
#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

namespace {

bool Contains(const JinjaCodeRange* ranges, int count, uint32_t code) {
  const JinjaCodeRange* found =
      std::upper_bound(ranges, ranges + count, code,
                       [](uint32_t wanted, const JinjaCodeRange& range) {
                         return wanted < range.first;
                       });
  return found != ranges && code <= found[-1].last;
}

struct CaseTable {
  const CaseRange* ranges;
  int num_ranges;
  const CaseExpansion* multiple;
  int num_multiple;
};

CaseTable TableOf(LetterCase to) {
  switch (to) {
    case LetterCase::kUpper:
      return {kUpper, kNumUpper, kUpperMultiple, kNumUpperMultiple};
    case LetterCase::kLower:
      return {kLower, kNumLower, kLowerMultiple, kNumLowerMultiple};
    case LetterCase::kTitle:
      break;
  }
  return {kTitle, kNumTitle, kTitleMultiple, kNumTitleMultiple};
}

}  // namespace

bool IsPythonSpace(uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) ||
         code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

size_t SkipPythonSpaces(absl::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Char c = DecodeUtf8(text, at);
    if (!IsPythonSpace(c.code)) break;
    at += c.bytes;
  }
  return at;
}

size_t SkipPythonSpacesBack(absl::string_view text, size_t end) {
  while (end > 0) {
    const size_t begin = CharBegin(text, end - 1);
    if (!IsPythonSpace(DecodeUtf8(text, begin).code)) break;
    end = begin;
  }
  return end;
}

bool IsPythonLineEnd(uint32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) ||
         code == 0x85 || code == 0x2028 || code == 0x2029;
}

bool IsPythonPrintable(uint32_t code) {
  if (code < 0x7F) return code >= 0x20;
  return Contains(kPrintable, kNumPrintable, code);
}

bool IsCased(uint32_t code) { return Contains(kCased, kNumCased, code); }

bool IsCaseIgnorable(uint32_t code) {
  return Contains(kCaseIgnorable, kNumCaseIgnorable, code);
}

int MapCase(uint32_t code, LetterCase to, uint32_t mapped[3]) {
  mapped[0] = code;
  if (code < 0x80) {
    if (to == LetterCase::kLower) {
      if (code >= 'A' && code <= 'Z') mapped[0] = code + 32;
    } else if (code >= 'a' && code <= 'z') {
      mapped[0] = code - 32;
    }
    return 1;
  }
  const CaseTable table = TableOf(to);
  const CaseRange* range = std::upper_bound(
      table.ranges, table.ranges + table.num_ranges, code,
      [](uint32_t wanted, const CaseRange& r) { return wanted < r.first; });
  if (range != table.ranges && code <= range[-1].last &&
      (code - range[-1].first) % range[-1].step == 0) {
    mapped[0] =
        static_cast<uint32_t>(static_cast<int64_t>(code) + range[-1].delta);
    return 1;
  }
  const CaseExpansion* end = table.multiple + table.num_multiple;
  const CaseExpansion* expansion = std::lower_bound(
      table.multiple, end, code,
      [](const CaseExpansion& e, uint32_t wanted) { return e.code < wanted; });
  if (expansion == end || expansion->code != code) return 1;
  int count = 0;
  while (count < 3 && expansion->mapped[count] != 0) {
    mapped[count] = expansion->mapped[count];
    ++count;
  }
  return count;
}

int64_t CountChars(absl::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return !IsContinuation(c); });
}

}  // namespace espalier::internal
