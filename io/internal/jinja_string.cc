#include "espalier/io/internal/jinja_string.h"

#include <algorithm>

#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

namespace {

// The character that ends at `end` > 0.
Utf8Char CharBefore(absl::string_view text, size_t end) {
  return DecodeUtf8(text, CharBegin(text, end - 1));
}

void AppendCode(uint32_t code, const JinjaMark& mark, JinjaString* out) {
  std::string bytes;
  AppendUtf8(code, &bytes);
  out->Append(bytes, mark);
}

// Whether the capital sigma at `begin` ends a word: something cased stands
// before it and nothing cased behind, case-ignorable characters apart
// (Unicode 3.13, Final_Sigma).
bool IsFinalSigma(absl::string_view text, size_t begin, size_t end) {
  bool cased = false;
  for (size_t at = begin; at > 0 && !cased;) {
    const Utf8Char c = CharBefore(text, at);
    if (!IsCaseIgnorable(c.code)) {
      if (!IsCased(c.code)) return false;
      cased = true;
    }
    at -= c.bytes;
  }
  if (!cased) return false;
  while (end < text.size()) {
    const Utf8Char c = DecodeUtf8(text, end);
    if (!IsCaseIgnorable(c.code)) return !IsCased(c.code);
    end += c.bytes;
  }
  return true;
}

constexpr uint32_t kCapitalSigma = 0x3A3;

// Appends the character at `at` in another case; its bytes.
size_t AppendCase(const JinjaString& text, size_t at, LetterCase to,
                  JinjaString* out) {
  const Utf8Char c = DecodeUtf8(text.bytes(), at);
  const JinjaMark mark = text.MarkAt(at);
  if (c.code == kCapitalSigma && to == LetterCase::kLower) {
    const bool is_final = IsFinalSigma(text.bytes(), at, at + c.bytes);
    AppendCode(is_final ? 0x3C2 : 0x3C3, mark, out);
    return c.bytes;
  }
  uint32_t mapped[3];
  const int count = MapCase(c.code, to, mapped);
  for (int i = 0; i < count; ++i) AppendCode(mapped[i], mark, out);
  return c.bytes;
}

size_t SkipWord(absl::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Char c = DecodeUtf8(text, at);
    if (IsPythonSpace(c.code)) break;
    at += c.bytes;
  }
  return at;
}

size_t SkipWordBack(absl::string_view text, size_t end) {
  while (end > 0) {
    const Utf8Char c = CharBefore(text, end);
    if (IsPythonSpace(c.code)) break;
    end -= c.bytes;
  }
  return end;
}

}  // namespace

JinjaMark JinjaString::MarkAt(size_t position) const {
  const auto run = std::upper_bound(
      runs_.begin(), runs_.end(), position,
      [](size_t wanted, const JinjaRun& r) { return wanted < r.end; });
  return run == runs_.end() ? JinjaMark() : run->mark;
}

void JinjaString::Append(absl::string_view bytes, const JinjaMark& mark) {
  if (bytes.empty()) return;
  bytes_.append(bytes.data(), bytes.size());
  if (!runs_.empty() && runs_.back().mark == mark) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), mark});
  }
}

void JinjaString::Append(const JinjaString& other, size_t begin, size_t end) {
  if (begin >= end) return;
  auto run = std::upper_bound(
      other.runs_.begin(), other.runs_.end(), begin,
      [](size_t wanted, const JinjaRun& r) { return wanted < r.end; });
  for (; begin < end; ++run) {
    const size_t stop = std::min(end, run->end);
    Append(absl::string_view(other.bytes_).substr(begin, stop - begin),
           run->mark);
    begin = stop;
  }
}

JinjaString JinjaString::Slice(size_t begin, size_t end) const {
  JinjaString slice;
  slice.Append(*this, begin, end);
  return slice;
}

void JinjaString::Print(const JinjaString& other, const JinjaMark& place) {
  size_t begin = 0;
  for (const JinjaRun& run : other.runs_) {
    JinjaMark mark = run.mark;
    if (mark.item < 0) mark.item = place.item;
    if (mark.generation < 0) mark.generation = place.generation;
    Append(absl::string_view(other.bytes_).substr(begin, run.end - begin),
           mark);
    begin = run.end;
  }
}

int64_t JinjaString::num_chars() const { return CountChars(bytes_); }

size_t JinjaString::ByteOfChar(int64_t index) const {
  size_t at = 0;
  while (index > 0 && at < bytes_.size()) {
    ++at;
    while (at < bytes_.size() && IsContinuation(bytes_[at])) ++at;
    --index;
  }
  return at;
}

JinjaString MapCase(const JinjaString& text, LetterCase to) {
  JinjaString out;
  out.Reserve(text.size());
  for (size_t at = 0; at < text.size();) at += AppendCase(text, at, to, &out);
  return out;
}

JinjaString Capitalize(const JinjaString& text) {
  JinjaString out;
  out.Reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    at += AppendCase(text, at,
                     at == 0 ? LetterCase::kTitle : LetterCase::kLower, &out);
  }
  return out;
}

JinjaString Title(const JinjaString& text) {
  JinjaString out;
  out.Reserve(text.size());
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const bool cased = IsCased(DecodeUtf8(text.bytes(), at).code);
    at += AppendCase(text, at,
                     in_word ? LetterCase::kLower : LetterCase::kTitle, &out);
    in_word = cased;
  }
  return out;
}

JinjaString Strip(const JinjaString& text, const JinjaString* chars, bool left,
                  bool right) {
  std::vector<uint32_t> codes;
  for (size_t at = 0; chars != nullptr && at < chars->size();) {
    const Utf8Char c = DecodeUtf8(chars->bytes(), at);
    codes.push_back(c.code);
    at += c.bytes;
  }
  std::sort(codes.begin(), codes.end());
  const auto goes = [&](uint32_t code) {
    return chars == nullptr
               ? IsPythonSpace(code)
               : std::binary_search(codes.begin(), codes.end(), code);
  };
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const Utf8Char c = DecodeUtf8(text.bytes(), begin);
    if (!goes(c.code)) break;
    begin += c.bytes;
  }
  while (right && end > begin) {
    const Utf8Char c = CharBefore(text.bytes(), end);
    if (!goes(c.code)) break;
    end -= c.bytes;
  }
  return text.Slice(begin, end);
}

std::vector<JinjaString> SplitLines(const JinjaString& text, bool keep_ends,
                                    size_t max_lines) {
  std::vector<JinjaString> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size() && lines.size() < max_lines;) {
    const Utf8Char c = DecodeUtf8(text.bytes(), at);
    size_t next = at + c.bytes;
    if (IsPythonLineEnd(c.code)) {
      if (c.code == '\r' && next < text.size() && text.bytes()[next] == '\n') {
        ++next;
      }
      lines.push_back(text.Slice(begin, keep_ends ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size() && lines.size() < max_lines) {
    lines.push_back(text.Slice(begin, text.size()));
  }
  return lines;
}

std::vector<JinjaString> Split(const JinjaString& text,
                               absl::string_view separator,
                               int64_t max_splits) {
  std::vector<JinjaString> parts;
  const absl::string_view bytes = text.bytes();
  size_t begin = 0;
  while (max_splits != 0) {
    const size_t found = bytes.find(separator, begin);
    if (found == absl::string_view::npos) break;
    --max_splits;
    parts.push_back(text.Slice(begin, found));
    begin = found + separator.size();
  }
  parts.push_back(text.Slice(begin, text.size()));
  return parts;
}

std::vector<JinjaString> SplitFromEnd(const JinjaString& text,
                                      absl::string_view separator,
                                      int64_t max_splits) {
  std::vector<JinjaString> parts;
  const absl::string_view bytes = text.bytes();
  size_t end = text.size();
  while (max_splits != 0 && end >= separator.size()) {
    const size_t found = bytes.rfind(separator, end - separator.size());
    if (found == absl::string_view::npos) break;
    --max_splits;
    parts.push_back(text.Slice(found + separator.size(), end));
    end = found;
  }
  parts.push_back(text.Slice(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<JinjaString> SplitWords(const JinjaString& text,
                                    int64_t max_splits) {
  std::vector<JinjaString> words;
  const absl::string_view bytes = text.bytes();
  size_t at = SkipPythonSpaces(bytes, 0);
  while (at < bytes.size() && max_splits != 0) {
    --max_splits;
    const size_t end = SkipWord(bytes, at);
    words.push_back(text.Slice(at, end));
    at = SkipPythonSpaces(bytes, end);
  }
  if (at < bytes.size()) {
    words.push_back(text.Slice(at, SkipPythonSpacesBack(bytes, bytes.size())));
  }
  return words;
}

std::vector<JinjaString> SplitWordsFromEnd(const JinjaString& text,
                                           int64_t max_splits) {
  std::vector<JinjaString> words;
  const absl::string_view bytes = text.bytes();
  size_t end = SkipPythonSpacesBack(bytes, bytes.size());
  while (end > 0 && max_splits != 0) {
    --max_splits;
    const size_t begin = SkipWordBack(bytes, end);
    words.push_back(text.Slice(begin, end));
    end = SkipPythonSpacesBack(bytes, begin);
  }
  if (end > 0) words.push_back(text.Slice(SkipPythonSpaces(bytes, 0), end));
  std::reverse(words.begin(), words.end());
  return words;
}

}  // namespace espalier::internal
