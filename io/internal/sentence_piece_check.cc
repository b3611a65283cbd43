#include "espalier/io/internal/sentence_piece_check.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::internal {

namespace {

constexpr uint64_t kNormalizerSpec = 3;
constexpr uint64_t kDenormalizerSpec = 5;
constexpr uint64_t kPrecompiledCharsmap = 2;

// Fields of a protobuf message.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : bytes_(bytes) {}

  // False at the end and where the message is broken.
  bool Next() {
    if (bytes_.empty() || broken_) return false;
    broken_ = !Read();
    return !broken_;
  }
  bool broken() const { return broken_; }

  uint64_t number() const { return number_; }
  // Of fields with a length; of the others, nothing of use.
  std::string_view content() const { return content_; }

 private:
  bool Read() {
    uint64_t tag = 0, length = 0;
    if (!Varint(&tag)) return false;
    number_ = tag >> 3;
    content_ = {};
    switch (tag & 7) {
      case 0:
        return Varint(&length);
      case 1:
        return Take(8);
      case 2:
        return Varint(&length) && Take(length);
      case 5:
        return Take(4);
      default:  // groups, which the format does not use
        return false;
    }
  }
  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes_[0]);
      bytes_.remove_prefix(1);
      *value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool Take(uint64_t count) {
    if (count > bytes_.size()) return false;
    content_ = bytes_.substr(0, static_cast<size_t>(count));
    bytes_.remove_prefix(static_cast<size_t>(count));
    return true;
  }

  std::string_view bytes_;
  bool broken_ = false;
  uint64_t number_ = 0;
  std::string_view content_;
};

uint32_t ReadU32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    value |= uint32_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  }
  return value;
}

// Walks the trie from its root along every byte that a node has.
class TrieCheck {
 public:
  TrieCheck(std::string_view trie, std::string_view targets)
      : trie_(trie), targets_(targets), longest_(trie.size() / 4, kUnknown) {}

  bool Holds() {
    if (longest_.empty() || targets_.empty() || targets_.back() != '\0') {
      return false;
    }
    return Visit(OffsetOf(Unit(0)), 0) && longest_[OffsetOf(Unit(0))] <= kMost;
  }

 private:
  static constexpr int16_t kUnknown = -1;
  static constexpr int16_t kOpen = -2;
  // The library keeps as many matches of one place, and no more.
  static constexpr int16_t kMost = 32;
  static constexpr int kMaxDepth = 256;

  uint32_t Unit(size_t index) const { return ReadU32(trie_, 4 * index); }
  static uint32_t OffsetOf(uint32_t unit) {
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
  }

  // `base`: where a node's children begin. Notes in longest_[base] how many
  // matches a path below can have. False where something is wrong.
  bool Visit(uint32_t base, int depth) {
    if ((base | 255u) >= longest_.size() || depth > kMaxDepth) return false;
    int16_t& longest = longest_[base];
    if (longest != kUnknown) return longest != kOpen;
    longest = kOpen;
    int16_t most = 0;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t child = base ^ byte;
      const uint32_t unit = Unit(child);
      if ((unit & (1u << 31 | 0xFFu)) != byte) continue;
      const uint32_t next = child ^ OffsetOf(unit);
      if (!Visit(next, depth + 1)) return false;
      const bool match = (unit >> 8 & 1) != 0;
      if (match && (Unit(next) & 0x7FFFFFFFu) >= targets_.size()) return false;
      most = std::max<int16_t>(
          most, static_cast<int16_t>(longest_[next] + (match ? 1 : 0)));
      if (most > kMost) return false;
    }
    longest = most;
    return true;
  }

  const std::string_view trie_;
  const std::string_view targets_;
  std::vector<int16_t> longest_;  // for each base
};

bool CharsmapHolds(std::string_view bytes) {
  if (bytes.empty()) return true;
  if (bytes.size() < 4) return false;
  const uint32_t trie_bytes = ReadU32(bytes, 0);
  bytes.remove_prefix(4);
  if (trie_bytes > bytes.size()) return false;
  return TrieCheck(bytes.substr(0, trie_bytes), bytes.substr(trie_bytes))
      .Holds();
}

}  // namespace

std::string CheckSentencePieceModel(std::string_view bytes) {
  FieldReader model(bytes);
  while (model.Next()) {
    if (model.number() != kNormalizerSpec &&
        model.number() != kDenormalizerSpec) {
      continue;
    }
    FieldReader spec(model.content());
    while (spec.Next()) {
      if (spec.number() == kPrecompiledCharsmap &&
          !CharsmapHolds(spec.content())) {
        return "its precompiled_charsmap is damaged";
      }
    }
    if (spec.broken()) return "a normalizer_spec is damaged";
  }
  return model.broken() ? "not a message of protobuf fields" : "";
}

}  // namespace espalier::internal
