#include "espalier/io/internal/text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace espalier::internal {

std::string Quote(absl::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) {
    return absl::StrCat("\"", absl::CHexEscape(text), "\"");
  }
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, max_bytes)),
                      "\"... (", text.size(), " bytes)");
}

bool IsBlank(absl::string_view text) {
  return absl::StripAsciiWhitespace(text).empty();
}

void AppendHex(uint32_t code, int digits, std::string* text) {
  constexpr char kHex[] = "0123456789abcdef";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    text->push_back(kHex[(code >> shift) & 15]);
  }
}

}  // namespace espalier::internal
