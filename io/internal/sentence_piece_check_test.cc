#include "espalier/io/internal/sentence_piece_check.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace espalier::internal {
namespace {

std::string U32(uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) {
    bytes.push_back(static_cast<char>(value >> (8 * i)));
  }
  return bytes;
}

std::string Field(char tag, const std::string& content) {
  std::string bytes(1, tag);
  size_t length = content.size();
  for (; length > 127; length >>= 7) {
    bytes.push_back(static_cast<char>((length & 127) | 128));
  }
  bytes.push_back(static_cast<char>(length));
  return bytes + content;
}

// A model with nothing but a table: one block of units.
class Charsmap {
 public:
  // Labels that no place is asked for: what darts-clone gives free units.
  Charsmap() : units(256) {
    for (uint32_t i = 0; i < 256; ++i) units[i] = (i ^ 1) & 0xFF;
    units[0] = 2u << 10;  // the root's children begin at 2
    // 2 ^ 'a' leads to 4, with a match; 4 holds the position in targets.
    units[2 ^ 'a'] = 'a' | 1u << 8 | ((2u ^ 'a') ^ 4u) << 10;
    units[4] = 1u << 31 | 1;
  }

  std::string Model(char tag = 0x1A) const {
    std::string trie;
    for (const uint32_t unit : units) trie += U32(unit);
    const std::string map = U32(claimed_bytes) + trie + targets;
    return Field(tag, Field(0x12, map));
  }

  std::vector<uint32_t> units;
  uint32_t claimed_bytes = 1024;
  std::string targets = std::string("x\0y\0", 4);
};

std::string Check(const Charsmap& map) {
  return CheckSentencePieceModel(map.Model());
}

TEST(SentencePieceCheckTest, WholeTableHolds) { EXPECT_EQ(Check({}), ""); }

TEST(SentencePieceCheckTest, NoTableHolds) {
  EXPECT_EQ(CheckSentencePieceModel(""), "");
  EXPECT_EQ(CheckSentencePieceModel(Field(0x1A, Field(0x12, ""))), "");
}

TEST(SentencePieceCheckTest, OffsetsThatLeaveTheTable) {
  Charsmap root;
  root.units[0] = 256u << 10;
  EXPECT_NE(Check(root), "");
  Charsmap child;
  child.units[2 ^ 'a'] = 'a' | 1u << 8 | 1u << 30;
  EXPECT_NE(Check(child), "");
  Charsmap empty;
  empty.units.clear();
  empty.claimed_bytes = 0;
  EXPECT_NE(Check(empty), "");
}

TEST(SentencePieceCheckTest, SizesAndPositionsThatLie) {
  Charsmap size;
  size.claimed_bytes = 1029;
  EXPECT_NE(Check(size), "");
  Charsmap position;
  position.units[4] = 1u << 31 | 4;
  EXPECT_NE(Check(position), "");
  Charsmap unterminated;
  unterminated.targets = "xy";
  EXPECT_NE(Check(unterminated), "");
}

TEST(SentencePieceCheckTest, RingsAreRefused) {
  Charsmap ring;  // 'a' again and again
  ring.units[2 ^ 'a'] = 'a' | ((2u ^ 'a') ^ 2u) << 10;
  EXPECT_NE(Check(ring), "");
}

TEST(SentencePieceCheckTest, AlsoBehindOthersAndInTheDenormalizer) {
  Charsmap bad;
  bad.units[4] = 1u << 31 | 4;
  EXPECT_NE(CheckSentencePieceModel(bad.Model(0x2A)), "");
  EXPECT_NE(CheckSentencePieceModel(Charsmap().Model() + bad.Model()), "");
}

TEST(SentencePieceCheckTest, NoMessage) {
  EXPECT_NE(CheckSentencePieceModel("\x1A\x7F"), "");
  EXPECT_NE(CheckSentencePieceModel("\x0B"), "");
}

}  // namespace
}  // namespace espalier::internal
