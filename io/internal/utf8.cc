#include "espalier/io/internal/utf8.h"

#include <cstring>

namespace espalier::internal {

namespace {

// What a first byte announces: length, and the range of the second byte, which
// alone keeps out overlong forms, surrogates and codes above U+10FFFF.
struct Lead {
  size_t bytes = 0;
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

// Bytes from `position` on that could begin a character: a whole one when
// *complete, else the maximal invalid part (at least 1).
size_t Extent(absl::string_view text, size_t position, bool* complete) {
  const Lead lead = LeadOf(static_cast<uint8_t>(text[position]));
  *complete = false;
  if (lead.bytes == 0) return 1;
  size_t length = 1;
  while (length < lead.bytes && position + length < text.size()) {
    const uint8_t byte = static_cast<uint8_t>(text[position + length]);
    const uint8_t low = length == 1 ? lead.low : 0x80;
    const uint8_t high = length == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return length;
    ++length;
  }
  *complete = length == lead.bytes;
  return length;
}

}  // namespace

Utf8Char DecodeUtf8(absl::string_view text, size_t position) {
  bool complete = false;
  const size_t bytes = Extent(text, position, &complete);
  if (!complete) return {};
  const auto at = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<uint8_t>(text[position + i]));
  };
  switch (bytes) {
    case 1:
      return {at(0), 1};
    case 2:
      return {(at(0) & 0x1F) << 6 | (at(1) & 0x3F), 2};
    case 3:
      return {(at(0) & 0x0F) << 12 | (at(1) & 0x3F) << 6 | (at(2) & 0x3F), 3};
    default:
      return {(at(0) & 0x07) << 18 | (at(1) & 0x3F) << 12 |
                  (at(2) & 0x3F) << 6 | (at(3) & 0x3F),
              4};
  }
}

void AppendUtf8(uint32_t code, std::string* text) {
  const auto put = [&](uint32_t byte) {
    text->push_back(static_cast<char>(static_cast<uint8_t>(byte)));
  };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

bool IsValidUtf8(absl::string_view text) {
  return FindInvalidUtf8(text) == text.size();
}

size_t FindInvalidUtf8(absl::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight = 0;
    if (text.size() - at >= sizeof(eight)) {
      std::memcpy(&eight, text.data() + at, sizeof(eight));
      if ((eight & 0x8080808080808080) == 0) {
        at += sizeof(eight);
        continue;
      }
    }
    bool complete = false;
    const size_t bytes = Extent(text, at, &complete);
    if (!complete) return at;
    at += bytes;
  }
  return at;
}

std::string ReplaceInvalidUtf8(absl::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  size_t position = 0;
  while (position < text.size()) {
    bool complete = false;
    const size_t bytes = Extent(text, position, &complete);
    if (complete) {
      valid.append(text.data() + position, bytes);
    } else {
      AppendUtf8(0xFFFD, &valid);
    }
    position += bytes;
  }
  return valid;
}

}  // namespace espalier::internal
