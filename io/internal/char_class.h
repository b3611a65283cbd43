#ifndef ESPALIER_IO_INTERNAL_CHAR_CLASS_H_
#define ESPALIER_IO_INTERNAL_CHAR_CLASS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace espalier::internal {

// General categories of Unicode 16, which the libraries that tokenizers are
// made with have too, and one of our own: controls that are white space.
enum Category : uint8_t {
  kCn,
  kCc,
  kCf,
  kCo,
  kCs,
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,  // clang-format off
  kMn, kMc, kMe, kNd, kNl, kNo, kPc, kPd, kPs, kPe,
  kPi, kPf, kPo, kSm, kSc, kSk, kSo, kZs, kZl, kZp,
  kSpaceControl,  // clang-format on
};

// Sets of categories, one bit each.
constexpr uint32_t CategoryBits(std::initializer_list<Category> categories) {
  uint32_t bits = 0;
  for (const Category category : categories) bits |= uint32_t{1} << category;
  return bits;
}
inline constexpr uint32_t kLetters = CategoryBits({kLu, kLl, kLt, kLm, kLo});
inline constexpr uint32_t kMarks = CategoryBits({kMn, kMc, kMe});
inline constexpr uint32_t kNumbers = CategoryBits({kNd, kNl, kNo});
inline constexpr uint32_t kPunctuation =
    CategoryBits({kPc, kPd, kPs, kPe, kPi, kPf, kPo});
inline constexpr uint32_t kSymbols = CategoryBits({kSm, kSc, kSk, kSo});
inline constexpr uint32_t kSpaces =
    CategoryBits({kZs, kZl, kZp, kSpaceControl});

// What is known of a character, in one byte.
class CharClass {
 public:
  constexpr CharClass() = default;
  constexpr explicit CharClass(uint8_t value) : value_(value) {}

  bool In(uint32_t categories) const {
    return (categories >> (value_ & 0x1F) & 1) != 0;
  }
  bool is_word() const { return (value_ & 0x20) != 0; }
  bool is_han() const { return (value_ & 0x40) != 0; }
  // Whether canonical composition may change or move it.
  bool may_compose() const { return (value_ & 0x80) != 0; }

 private:
  uint8_t value_ = 0;
};

struct CharTables {
  std::array<uint8_t, 0x110000 / 256> block{};
  std::array<uint8_t, size_t{256} * 256> value{};
};
extern const CharTables kCharTables;

// `code` is at most U+10FFFF.
inline CharClass ClassOf(uint32_t code) {
  return CharClass(
      kCharTables.value[kCharTables.block[code >> 8] * 256u + (code & 0xFF)]);
}

// The character at text[at] of valid UTF-8; at < text.size().
struct ScannedChar {
  CharClass char_class;
  uint8_t bytes = 0;
};
inline ScannedChar ScanChar(absl::string_view text, size_t at, uint32_t* code) {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data()) + at;
  if (p[0] < 0x80) {
    *code = p[0];
    return {CharClass(kCharTables.value[p[0]]), 1};
  }
  if (p[0] < 0xE0) {
    *code = (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    return {ClassOf(*code), 2};
  }
  if (p[0] < 0xF0) {
    *code = (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    return {ClassOf(*code), 3};
  }
  *code = (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 |
          (p[3] & 0x3Fu);
  return {ClassOf(*code), 4};
}

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_CHAR_CLASS_H_
