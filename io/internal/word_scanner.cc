#include "espalier/io/internal/word_scanner.h"

#include <cstdint>

#include "espalier/io/internal/char_class.h"

namespace espalier::internal {

namespace {

// A place in text and the character there; at the end bytes is 0 and the class
// belongs to no set that is asked for.
struct Cursor {
  Cursor(absl::string_view whole, size_t start) : text(whole), at(start) {
    Load();
  }
  void Load() {
    if (at < text.size()) {
      c = ScanChar(text, at, &code);
    } else {
      c = {};
      code = 0;
    }
  }
  void Next() {
    at += c.bytes;
    Load();
  }
  bool done() const { return c.bytes == 0; }
  bool In(uint32_t categories) const {
    return c.bytes != 0 && c.char_class.In(categories);
  }
  bool NotIn(uint32_t categories) const {
    return c.bytes != 0 && !c.char_class.In(categories);
  }
  bool IsNewline() const { return code == '\r' || code == '\n'; }
  void SkipWhile(uint32_t categories) {
    while (In(categories)) Next();
  }

  absl::string_view text;
  size_t at;
  uint32_t code = 0;
  ScannedChar c;
};

bool IsLetter(char c, char lower) { return (c | 0x20) == lower; }

// Bytes of 's 't 're 've 'm 'll 'd at `at`, 0 for none. Where case does not
// matter, U+017F (long s) is an s too.
template <bool kAnyCase>
size_t Contraction(absl::string_view text, size_t at) {
  if (text.size() < at + 2 || text[at] != '\'') return 0;
  const char a = text[at + 1];
  const char b = text.size() > at + 2 ? text[at + 2] : '\0';
  const auto is = [](char c, char lower) {
    return kAnyCase ? IsLetter(c, lower) : c == lower;
  };
  if (is(a, 's') || is(a, 't') || is(a, 'm') || is(a, 'd')) return 2;
  if ((is(a, 'r') && is(b, 'e')) || (is(a, 'v') && is(b, 'e')) ||
      (is(a, 'l') && is(b, 'l'))) {
    return 3;
  }
  if (kAnyCase && a == '\xC5' && b == '\xBF') return 3;
  return 0;
}

// \s+(?!\S)|\s+ behind a cursor on white space; with kNewlines,
// \s*[\r\n]+|\s+(?!\S)|\s+.
template <bool kNewlines>
size_t EndOfSpaces(Cursor cursor) {
  size_t last = cursor.at;  // where the run's last character begins
  size_t num_chars = 0;
  size_t behind_newline = 0;
  while (cursor.In(kSpaces)) {
    const bool newline = cursor.IsNewline();
    last = cursor.at;
    cursor.Next();
    ++num_chars;
    if (kNewlines && newline) behind_newline = cursor.at;
  }
  if (behind_newline != 0) return behind_newline;
  return cursor.done() || num_chars == 1 ? cursor.at : last;
}

bool ScanGpt2(absl::string_view text, size_t start, Match* match) {
  if (start >= text.size()) return false;
  match->begin = start;
  if (const size_t bytes = Contraction<false>(text, start)) {
    match->end = start + bytes;
    return true;
  }
  Cursor cursor(text, start);
  if (cursor.code == ' ') {
    Cursor next = cursor;
    next.Next();
    if (next.NotIn(kSpaces)) cursor = next;
  }
  if (cursor.In(kSpaces)) {
    match->end = EndOfSpaces<false>(cursor);
    return true;
  }
  if (cursor.In(kLetters)) {
    cursor.SkipWhile(kLetters);
  } else if (cursor.In(kNumbers)) {
    cursor.SkipWhile(kNumbers);
  } else {
    while (cursor.NotIn(kSpaces | kLetters | kNumbers)) cursor.Next();
  }
  match->end = cursor.at;
  return true;
}

// \p{N}{1,kMax}
template <int kMax>
size_t EndOfNumber(Cursor cursor) {
  for (int i = 0; i < kMax && cursor.In(kNumbers); ++i) cursor.Next();
  return cursor.at;
}

// The end of " ?[^\s\p{L}\p{N}]+[\r\n]*" (with kSlash: [\r\n/]*), and else of
// white space; one of the two is there.
template <bool kSlash>
size_t EndOfSignsOrSpaces(Cursor cursor) {
  constexpr uint32_t kNoSign = kSpaces | kLetters | kNumbers;
  Cursor sign = cursor;
  if (sign.code == ' ') sign.Next();
  if (!sign.NotIn(kNoSign)) return EndOfSpaces<true>(cursor);
  while (sign.NotIn(kNoSign)) sign.Next();
  while (!sign.done() && (sign.IsNewline() || (kSlash && sign.code == '/'))) {
    sign.Next();
  }
  return sign.at;
}

template <int kMaxDigits>
bool ScanLlama3(absl::string_view text, size_t start, Match* match) {
  if (start >= text.size()) return false;
  match->begin = start;
  if (const size_t bytes = Contraction<true>(text, start)) {
    match->end = start + bytes;
    return true;
  }
  const Cursor first(text, start);
  Cursor word = first;
  if (!word.In(kLetters | kNumbers) && !word.IsNewline()) word.Next();
  if (word.In(kLetters)) {
    word.SkipWhile(kLetters);
    match->end = word.at;
  } else if (first.In(kNumbers)) {
    match->end = EndOfNumber<kMaxDigits>(first);
  } else {
    match->end = EndOfSignsOrSpaces<false>(first);
  }
  return true;
}

constexpr uint32_t kCaseless = CategoryBits({kLm, kLo}) | kMarks;
constexpr uint32_t kUpper = CategoryBits({kLu, kLt}) | kCaseless;
constexpr uint32_t kLower = CategoryBits({kLl}) | kCaseless;

template <bool kHanApart>
bool InCase(const Cursor& cursor, uint32_t categories) {
  return cursor.In(categories) && !(kHanApart && cursor.c.char_class.is_han());
}

// The end of [upper]*[lower]+ at the cursor, 0 when it does not match.
template <bool kHanApart>
size_t EndOfCapitalized(Cursor cursor) {
  size_t behind_caseless = 0;  // of the last caseless one among the upper
  while (InCase<kHanApart>(cursor, kUpper)) {
    const bool caseless = cursor.In(kCaseless);
    cursor.Next();
    if (caseless) behind_caseless = cursor.at;
  }
  if (!InCase<kHanApart>(cursor, kLower)) return behind_caseless;
  while (InCase<kHanApart>(cursor, kLower)) cursor.Next();
  return cursor.at;
}

// The end of [upper]+[lower]* where no lower one follows.
template <bool kHanApart>
size_t EndOfUpper(Cursor cursor) {
  const size_t begin = cursor.at;
  while (InCase<kHanApart>(cursor, kUpper)) cursor.Next();
  return cursor.at == begin ? 0 : cursor.at;
}

template <bool kKimi>
bool ScanO200k(absl::string_view text, size_t start, Match* match) {
  if (start >= text.size()) return false;
  match->begin = start;
  const Cursor first(text, start);
  if (kKimi && first.c.char_class.is_han()) {
    Cursor han = first;
    while (!han.done() && han.c.char_class.is_han()) han.Next();
    match->end = han.at;
    return true;
  }
  const bool has_lead = !first.In(kLetters | kNumbers) && !first.IsNewline();
  Cursor behind = first;
  if (has_lead) behind.Next();
  size_t end = 0;
  if (has_lead) end = EndOfCapitalized<kKimi>(behind);
  if (end == 0) end = EndOfCapitalized<kKimi>(first);
  if (end == 0 && has_lead) end = EndOfUpper<kKimi>(behind);
  if (end == 0) end = EndOfUpper<kKimi>(first);
  if (end != 0) {
    match->end = end + Contraction<true>(text, end);
  } else if (first.In(kNumbers)) {
    match->end = EndOfNumber<3>(first);
  } else {
    match->end = EndOfSignsOrSpaces<!kKimi>(first);
  }
  return true;
}

bool ScanDeepSeekNumbers(absl::string_view text, size_t start, Match* match) {
  Cursor cursor(text, start);
  while (cursor.NotIn(kNumbers)) cursor.Next();
  match->begin = cursor.at;
  match->end = EndOfNumber<3>(cursor);
  return match->end > match->begin;
}

bool IsDeepSeekCjk(uint32_t code) {
  return (code >= 0x4E00 && code <= 0x9FA5) ||
         (code >= 0x3040 && code <= 0x30FF);
}

bool ScanDeepSeekCjk(absl::string_view text, size_t start, Match* match) {
  Cursor cursor(text, start);
  while (!cursor.done() && !IsDeepSeekCjk(cursor.code)) cursor.Next();
  match->begin = cursor.at;
  while (IsDeepSeekCjk(cursor.code)) cursor.Next();
  match->end = cursor.at;
  return match->end > match->begin;
}

bool IsAsciiLetter(uint32_t code) {
  return code < 0x80 && (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
}

// Of the third expression at the cursor; 0 when it does not match there.
size_t EndOfDeepSeekWord(const Cursor& first) {
  constexpr uint32_t kSigns = kPunctuation | kSymbols;
  constexpr uint32_t kWordParts = kLetters | kMarks;
  Cursor cursor = first;
  if (first.code < 0x80 && first.In(kSigns)) {
    cursor.Next();
    if (IsAsciiLetter(cursor.code)) {
      while (IsAsciiLetter(cursor.code)) cursor.Next();
      return cursor.at;
    }
    cursor = first;
  }
  if (!first.In(kLetters | kSigns) && !first.IsNewline()) {
    cursor.Next();
    if (!cursor.In(kWordParts)) cursor = first;
  }
  if (cursor.In(kWordParts)) {
    cursor.SkipWhile(kWordParts);
    return cursor.at;
  }
  cursor = first;
  if (cursor.code == ' ') cursor.Next();
  if (cursor.In(kSigns)) {
    cursor.SkipWhile(kSigns);
    while (!cursor.done() && cursor.IsNewline()) cursor.Next();
    return cursor.at;
  }
  return first.In(kSpaces) ? EndOfSpaces<true>(first) : 0;
}

bool ScanDeepSeekWords(absl::string_view text, size_t start, Match* match) {
  for (Cursor cursor(text, start); !cursor.done(); cursor.Next()) {
    match->end = EndOfDeepSeekWord(cursor);
    if (match->end != 0) {
      match->begin = cursor.at;
      return true;
    }
  }
  return false;
}

}  // namespace

constinit const KnownExpression kGpt2Expression = {
    "gpt2",
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
    "\\s+(?!\\S)|\\s+",
    ScanGpt2};
constinit const KnownExpression kLlama3Expression = {
    "llama3",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    ScanLlama3<3>};
constinit const KnownExpression kQwenExpression = {
    "qwen",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    ScanLlama3<1>};
constinit const KnownExpression kO200kExpression = {
    "o200k",
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*"
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|"
    "\\s+(?!\\S)|\\s+",
    ScanO200k<false>};
constinit const KnownExpression kKimiExpression = {
    "kimi",
    "[\\p{Han}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*"
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+"
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
    "\\s+(?!\\S)|\\s+",
    ScanO200k<true>};
constinit const KnownExpression kDeepSeekNumbersExpression = {
    "deepseek numbers", "\\p{N}{1,3}", ScanDeepSeekNumbers};
constinit const KnownExpression kDeepSeekCjkExpression = {
    "deepseek cjk",
    "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-"
    "\xE3\x83\xBF]+",
    ScanDeepSeekCjk};
constinit const KnownExpression kDeepSeekWordsExpression = {
    "deepseek words",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
    "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
    "\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    ScanDeepSeekWords};

ScanFn* FindScanner(absl::string_view expression) {
  for (const KnownExpression* known :
       {&kGpt2Expression, &kLlama3Expression, &kQwenExpression,
        &kO200kExpression, &kKimiExpression, &kDeepSeekNumbersExpression,
        &kDeepSeekCjkExpression, &kDeepSeekWordsExpression}) {
    if (expression == known->expression) return known->scan;
  }
  return nullptr;
}

}  // namespace espalier::internal
