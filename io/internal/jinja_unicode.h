#ifndef ESPALIER_IO_INTERNAL_JINJA_UNICODE_H_
#define ESPALIER_IO_INTERNAL_JINJA_UNICODE_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace espalier::internal {

// Characters as Python's str sees them (Unicode 14, CPython 3.11).

bool IsPythonSpace(uint32_t code);  // str.isspace, and \s of re
// Behind the spaces at `at`, and in front of those that end at `end`.
size_t SkipPythonSpaces(absl::string_view text, size_t at);
size_t SkipPythonSpacesBack(absl::string_view text, size_t end);
// str.splitlines ends lines here.
bool IsPythonLineEnd(uint32_t code);
bool IsPythonPrintable(uint32_t code);
bool IsCased(uint32_t code);
bool IsCaseIgnorable(uint32_t code);

enum class LetterCase : uint8_t { kUpper, kLower, kTitle };

// Writes what `code` maps to; the number of codes, 1 to 3. Of the context that
// a capital sigma's lower case depends on it knows nothing.
int MapCase(uint32_t code, LetterCase to, uint32_t mapped[3]);

// Number of characters of valid UTF-8.
int64_t CountChars(absl::string_view text);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_JINJA_UNICODE_H_
