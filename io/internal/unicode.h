#ifndef ESPALIER_IO_INTERNAL_UNICODE_H_
#define ESPALIER_IO_INTERNAL_UNICODE_H_

#include <cstdint>
#include <string>

namespace espalier::internal {

// White_Space of Unicode.
bool IsWhiteSpace(uint32_t code);

// Whether a character belongs to a word: letters, marks, decimal digits,
// connectors (Unicode TR 18, \w).
bool IsWordChar(uint32_t code);

// Canonical composition (Unicode Standard Annex 15, form C) of valid UTF-8.
// Takes time linear in the text, apart from sorting runs of marks.
std::string ToNfc(std::string text);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_UNICODE_H_
