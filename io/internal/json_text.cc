#include "espalier/io/internal/json_text.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/text.h"
#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

absl::Status AppendJsonString(absl::string_view value, std::string* text) {
  if (!IsValidUtf8(value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("text is not UTF-8: ", Quote(value)));
  }
  text->push_back('"');
  for (const char c : value) {
    switch (c) {
      case '"':
        *text += "\\\"";
        break;
      case '\\':
        *text += "\\\\";
        break;
      case '\n':
        *text += "\\n";
        break;
      case '\r':
        *text += "\\r";
        break;
      case '\t':
        *text += "\\t";
        break;
      default: {
        const uint8_t byte = static_cast<uint8_t>(c);
        if (byte >= 0x20) {
          text->push_back(c);
        } else {
          *text += "\\u";
          AppendHex(byte, 4, text);
        }
      }
    }
  }
  text->push_back('"');
  return absl::OkStatus();
}

}  // namespace espalier::internal
