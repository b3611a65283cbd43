#ifndef ESPALIER_IO_INTERNAL_TEXT_H_
#define ESPALIER_IO_INTERNAL_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace espalier::internal {

// Text from a file, made fit for a message: quoted, other bytes than printable
// ASCII escaped, shortened to about `max_bytes`.
std::string Quote(absl::string_view text, size_t max_bytes = 160);

// Whether there is nothing but ASCII white space.
bool IsBlank(absl::string_view text);

// Appends the last `digits` hexadecimal digits, small letters.
void AppendHex(uint32_t code, int digits, std::string* text);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_TEXT_H_
