#ifndef ESPALIER_IO_INTERNAL_UNICODE_H_
#define ESPALIER_IO_INTERNAL_UNICODE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace espalier::internal {

// White_Space of Unicode.
bool IsWhiteSpace(uint32_t code);

// Whether a character belongs to a word (Unicode TR 18, \w): alphabetic
// characters, marks, decimal digits, connectors, joiners.
bool IsWordChar(uint32_t code);

// False when canonical composition may change the text, valid UTF-8.
bool IsSurelyNfc(absl::string_view text);

// Canonical composition (Unicode Standard Annex 15, form C) of valid UTF-8, as
// of Unicode 9, which the tokenizers library has: characters assigned since
// stay as they are. Takes time linear in the text, apart from sorting runs of
// marks.
std::string ToNfc(absl::string_view text);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_UNICODE_H_
