#include "espalier/io/internal/byte_level.h"

#include <array>
#include <cstddef>

#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

namespace {

constexpr bool IsPrintable(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

struct Tables {
  std::array<uint16_t, 256> char_of_byte{};
  std::array<int16_t, 512> byte_of_char{};
};

constexpr Tables MakeTables() {
  Tables tables;
  for (int16_t& byte : tables.byte_of_char) byte = -1;
  uint16_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint16_t code =
        IsPrintable(byte) ? static_cast<uint16_t>(byte) : next++;
    tables.char_of_byte[byte] = code;
    tables.byte_of_char[code] = static_cast<int16_t>(byte);
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

}  // namespace

uint32_t CharOfByte(uint8_t byte) { return kTables.char_of_byte[byte]; }

int ByteOfChar(uint32_t code) {
  return code < kTables.byte_of_char.size() ? kTables.byte_of_char[code] : -1;
}

std::string BytesToChars(absl::string_view bytes) {
  std::string chars;
  chars.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    AppendUtf8(CharOfByte(static_cast<uint8_t>(byte)), &chars);
  }
  return chars;
}

std::string CharsToBytes(absl::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (size_t at = 0; at < token.size();) {
    const Utf8Char c = DecodeUtf8(token, at);
    const int byte = c.bytes == 0 ? -1 : ByteOfChar(c.code);
    if (byte < 0) return std::string(token);
    bytes.push_back(static_cast<char>(static_cast<uint8_t>(byte)));
    at += c.bytes;
  }
  return bytes;
}

}  // namespace espalier::internal
