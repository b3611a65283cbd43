#ifndef ESPALIER_IO_INTERNAL_UTF8_H_
#define ESPALIER_IO_INTERNAL_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace espalier::internal {

// One character of UTF-8 text.
struct Utf8Char {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: what stands there is not valid UTF-8
};

// Whether the byte goes on with a character: it begins none.
inline bool IsContinuation(char c) {
  return (static_cast<uint8_t>(c) & 0xC0) == 0x80;
}

// Where the character begins that the byte at `position` is part of.
inline size_t CharBegin(absl::string_view text, size_t position) {
  while (position > 0 && IsContinuation(text[position])) --position;
  return position;
}

// The character that begins at text[position]; position < text.size(). Overlong
// forms, surrogates and codes above U+10FFFF are not valid.
Utf8Char DecodeUtf8(absl::string_view text, size_t position);

// Appends a code up to U+10FFFF that is no surrogate.
void AppendUtf8(uint32_t code, std::string* text);

bool IsValidUtf8(absl::string_view text);

// Where the first byte stands that begins no character; text.size() when there
// is none.
size_t FindInvalidUtf8(absl::string_view text);

// The text with every maximal invalid part replaced by U+FFFD, as Unicode
// (chapter 3, "U+FFFD Substitution of Maximal Subparts") and Python's
// errors="replace" do.
std::string ReplaceInvalidUtf8(absl::string_view text);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_UTF8_H_
