#ifndef ESPALIER_IO_INTERNAL_BYTE_LEVEL_H_
#define ESPALIER_IO_INTERNAL_BYTE_LEVEL_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace espalier::internal {

// GPT-2's visible stand-ins for bytes (openai/gpt-2 encoder.py,
// bytes_to_unicode): printable Latin-1 characters stand for themselves, the
// other 68 bytes for U+0100 and up.
uint32_t CharOfByte(uint8_t byte);

// -1 for a character that stands for no byte.
int ByteOfChar(uint32_t code);

// Every byte of `bytes` as its stand-in, UTF-8.
std::string BytesToChars(absl::string_view bytes);

// The bytes that a token stands for; the token itself where one of its
// characters stands for none.
std::string CharsToBytes(absl::string_view token);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_BYTE_LEVEL_H_
