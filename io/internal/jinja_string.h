#ifndef ESPALIER_IO_INTERNAL_JINJA_STRING_H_
#define ESPALIER_IO_INTERNAL_JINJA_STRING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/internal/jinja_unicode.h"
#include "espalier/io/jinja.h"

namespace espalier::internal {

// Valid UTF-8 that knows where each of its bytes comes from. Positions are
// bytes unless they are called chars.
class JinjaString {
 public:
  JinjaString() = default;
  JinjaString(absl::string_view bytes, const JinjaMark& mark) {
    Append(bytes, mark);
  }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Memory it takes, of the text and of its marks where there are several.
  size_t cost() const {
    return size() + (runs_.size() > 1 ? runs_.size() * sizeof(JinjaRun) : 0);
  }
  absl::Span<const JinjaRun> runs() const { return runs_; }
  JinjaMark MarkAt(size_t position) const;

  void Append(absl::string_view bytes, const JinjaMark& mark);
  void Append(const JinjaString& other) { Append(other, 0, other.size()); }
  void Append(const JinjaString& other, size_t begin, size_t end);
  JinjaString Slice(size_t begin, size_t end) const;
  // Appends `other`; where it does not say so itself, as printed by `place`'s
  // item and generation.
  void Print(const JinjaString& other, const JinjaMark& place);
  void Reserve(size_t bytes) { bytes_.reserve(bytes); }

  // Scans the text.
  int64_t num_chars() const;
  // Where character `index` begins; 0 <= index <= num_chars().
  size_t ByteOfChar(int64_t index) const;

 private:
  std::string bytes_;
  absl::InlinedVector<JinjaRun, 1> runs_;
};

// What Python's methods of the same name give.
JinjaString MapCase(const JinjaString& text, LetterCase to);
JinjaString Capitalize(const JinjaString& text);
JinjaString Title(const JinjaString& text);
// Without `chars`: white space. Either side may be left alone.
JinjaString Strip(const JinjaString& text, const JinjaString* chars, bool left,
                  bool right);
// At most max_lines of them.
std::vector<JinjaString> SplitLines(const JinjaString& text, bool keep_ends,
                                    size_t max_lines);
// At `separator`, not empty; at most max_splits (negative: all).
std::vector<JinjaString> Split(const JinjaString& text,
                               absl::string_view separator, int64_t max_splits);
std::vector<JinjaString> SplitFromEnd(const JinjaString& text,
                                      absl::string_view separator,
                                      int64_t max_splits);
// At runs of white space.
std::vector<JinjaString> SplitWords(const JinjaString& text,
                                    int64_t max_splits);
std::vector<JinjaString> SplitWordsFromEnd(const JinjaString& text,
                                           int64_t max_splits);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_JINJA_STRING_H_
