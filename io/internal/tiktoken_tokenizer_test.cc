#include "espalier/io/internal/tiktoken_tokenizer.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"
#include "espalier/io/internal/utf8.h"

namespace espalier::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The 256 bytes, then pairs of letters and whatever else makes the number.
std::string Ranks(size_t num_ranks) {
  std::string text;
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    std::string token;
    if (rank < 256) {
      token.push_back(static_cast<char>(rank));
    } else if (rank < 256 + 676) {
      token = {static_cast<char>('a' + (rank - 256) / 26),
               static_cast<char>('a' + (rank - 256) % 26)};
    } else {
      token = absl::StrCat("_", rank);
    }
    absl::StrAppend(&text, absl::Base64Escape(token), " ", rank, "\n");
  }
  return text;
}

constexpr char kKimiConfig[] = R"({"tokenizer_class": "TikTokenTokenizer",
    "bos_token": "[BOS]", "eos_token": "<|im_end|>", "added_tokens_decoder": {
    "163584": {"content": "[BOS]", "lstrip": false, "normalized": false,
               "rstrip": false, "single_word": false, "special": true},
    "163586": {"content": "<|im_end|>", "lstrip": false, "normalized": false,
               "rstrip": false, "single_word": false, "special": true}}})";

TEST(TiktokenTokenizerTest, NumberOfRanksAndConfigMakeAKimi) {
  const auto tokenizer = ParseTokenizer(Ranks(163584), kKimiConfig, "t");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 163840);
  EXPECT_EQ((*tokenizer)->bos_id(), 163584);
  EXPECT_EQ((*tokenizer)->eos_id(), 163586);
  EXPECT_EQ((*tokenizer)->TokenOf(163700), "<|reserved_token_163700|>");
  EXPECT_TRUE((*tokenizer)->IsSpecial(163700));
  EXPECT_FALSE((*tokenizer)->IsSpecial(300));
  EXPECT_EQ((*tokenizer)->TokenOf(163840), "");
  EXPECT_EQ((*tokenizer)->TokenOf(' '), "\xC4\xA0");
  EXPECT_EQ((*tokenizer)->IdOf("\xC4\xA0"), ' ');
  EncodeOptions match;
  match.match_special_tokens = true;
  EXPECT_THAT((*tokenizer)->Encode("ab<|im_end|>", match).value(),
              ElementsAre(256 + 1, 163586));
  // Control tokens spelled in content are text, and come back as it.
  const auto plain = (*tokenizer)->Encode("<|im_end|>").value();
  EXPECT_THAT(plain, ::testing::Each(::testing::Lt(163584)));
  EXPECT_EQ((*tokenizer)->Decode(plain), "<|im_end|>");
  EXPECT_EQ((*tokenizer)->Decode({163586, 'x', 163999, -1, 0xC3}, true),
            "x\xEF\xBF\xBD");
  // Kimi puts nothing around a text by itself.
  EncodeOptions add;
  add.add_special_tokens = true;
  EXPECT_THAT((*tokenizer)->Encode("x", add).value(), ElementsAre('x'));
}

TEST(TiktokenTokenizerTest, Llama3PutsOneBosInFrontOfRawTextAlone) {
  const auto tokenizer = ParseTokenizer(Ranks(128000), "", "t");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EncodeOptions raw;
  raw.add_special_tokens = true;
  EXPECT_THAT((*tokenizer)->Encode("x", raw).value(), ElementsAre(128000, 'x'));
  EncodeOptions rendered;  // a chat whose template has written its own
  rendered.match_special_tokens = true;
  EXPECT_THAT((*tokenizer)->Encode("<|begin_of_text|>x", rendered).value(),
              ElementsAre(128000, 'x'));
}

TEST(TiktokenTokenizerTest, TheFamilyMustBeKnown) {
  const auto refusal = [](absl::string_view config, absl::string_view family) {
    const auto tokenizer = ParseTokenizer(Ranks(300), config, "t", family);
    return std::string(tokenizer.status().message());
  };
  EXPECT_EQ(refusal("", ""),
            "t: 300 ranks name no family of tokenizers; known: gpt2, cl100k, "
            "o200k, llama3, qwen, kimi");
  EXPECT_THAT(refusal(R"({"tokenizer_class": "Odd"})", ""),
              HasSubstr("300 ranks and class Odd name no family"));
  EXPECT_THAT(refusal("", "kimmy"), HasSubstr("\"kimmy\" name no family"));
  EXPECT_EQ(refusal("", "kimi"), "");
  EXPECT_EQ(refusal(R"({"tokenizer_class": "QWenTokenizer"})", ""), "");
  EXPECT_EQ(refusal(R"({"bos_token": "<x>"})", "qwen"),
            "t: bos_token \"<x>\" is not in the vocabulary");
  EXPECT_THAT(refusal(R"({"added_tokens_decoder": {"5": {"content": "<x>",
          "lstrip": false, "normalized": false, "rstrip": false,
          "single_word": false, "special": true}}})",
                      "qwen"),
              HasSubstr("added token 5, \"<x>\", contradicts another token"));
}

TEST(TiktokenTokenizerTest, RanksNameTheBadLine) {
  const auto refusal = [](absl::string_view text) {
    return std::string(ParseRanks(text, "t").status().message());
  };
  EXPECT_EQ(ParseRanks("YQ== 1\nYg== 0\n\n", "t").value(),
            (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(refusal("YQ== 0\nYg==\n"),
            "t: line 2, \"Yg==\", is no base64 token and rank");
  EXPECT_THAT(refusal("YQ== 0\n*** 1\n"), HasSubstr("line 2"));
  EXPECT_THAT(refusal("YQ== 0\nYg== 0\n"), HasSubstr("line 2"));
  EXPECT_THAT(refusal("YQ== 4000000000\n"), HasSubstr("line 1"));
  EXPECT_THAT(refusal("YQ== 1\n"), HasSubstr("rank 0 is missing"));
  EXPECT_THAT(
      refusal(absl::StrCat(absl::Base64Escape(std::string(2000, 'a')), " 0")),
      HasSubstr("too long a token"));
  EXPECT_TRUE(LooksLikeRanks("YQ== 0\n"));
  EXPECT_FALSE(LooksLikeRanks("{\"a\": 0}"));
  EXPECT_FALSE(LooksLikeRanks(""));
}

TEST(TiktokenTokenizerTest, RandomBytesNeverCrash) {
  const std::string good = Ranks(400);
  std::mt19937 random(10);
  int num_loaded = 0;
  for (int round = 0; round < 500; ++round) {
    std::string ranks = good;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      ranks[random() % ranks.size()] = static_cast<char>(random() % 128);
    }
    const auto tokenizer = ParseTokenizer(ranks, "", "t", "o200k");
    if (!tokenizer.ok()) continue;
    ++num_loaded;
    const auto ids = (*tokenizer)->Encode("garden wall 12 \xC3\xA9 abcabc");
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ((*tokenizer)->Decode(*ids), "garden wall 12 \xC3\xA9 abcabc");
  }
  EXPECT_GT(num_loaded, 0);
}

std::vector<size_t> PieceChars(absl::string_view text) {
  std::vector<size_t> lengths;
  std::string joined;
  EXPECT_TRUE(CutLongText(text, [&](absl::string_view piece) {
                size_t chars = 0;
                for (size_t at = 0; at < piece.size(); ++chars) {
                  at += DecodeUtf8(piece, at).bytes;
                }
                lengths.push_back(chars);
                joined.append(piece.data(), piece.size());
                return absl::OkStatus();
              }).ok());
  EXPECT_EQ(joined, text);
  return lengths;
}

TEST(TiktokenTokenizerTest, LongTextIsCutByCharacters) {
  EXPECT_THAT(PieceChars(""), ElementsAre());
  EXPECT_THAT(PieceChars(std::string(25000, 'a')), ElementsAre(25000));
  EXPECT_THAT(PieceChars(std::string(25001, 'a')), ElementsAre(25000, 1));
  EXPECT_THAT(PieceChars(std::string(25000, 'a') + std::string(60000, ' ')),
              ElementsAre(50000, 25000, 10000));
  std::string words;
  while (words.size() < 900000) words += "\xC3\xA9 ";
  EXPECT_THAT(PieceChars(words), ElementsAre(400000, 200000));
}

}  // namespace
}  // namespace espalier::internal
