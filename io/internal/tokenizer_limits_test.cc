#include "espalier/io/internal/tokenizer_limits.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/tokenizer.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kModel[] = R"({"type":"BPE","vocab":{"a":0," ":1},"merges":[]})";

// What loading says of a file with one more part; "" where it loads.
std::string Refusal(absl::string_view part, absl::string_view json) {
  const std::string model =
      part == "model" ? std::string(json) : std::string(kModel);
  std::string text = absl::StrCat("{\"model\":", model);
  if (part != "model") absl::StrAppend(&text, ",\"", part, "\":", json);
  return std::string(
      ParseTokenizer(absl::StrCat(text, "}"), "", "t").status().message());
}

std::string Repeated(absl::string_view item, int count) {
  std::string list;
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&list, i == 0 ? "" : ",", item);
  }
  return list;
}

std::string Sequence(absl::string_view key, absl::string_view item, int count) {
  return absl::StrCat(R"({"type":"Sequence",")", key, "\":[",
                      Repeated(item, count), "]}");
}

std::string Replace(absl::string_view pattern, absl::string_view content) {
  return absl::StrCat(R"({"type":"Replace","pattern":{"String":")", pattern,
                      R"("},"content":")", content, "\"}");
}

TEST(TokenizerLimitsTest, StepsCannotMakeTextExplode) {
  const std::string twice = Replace("a", "aa");
  EXPECT_EQ(Refusal("normalizer", Sequence("normalizers", twice, 8)), "");
  EXPECT_THAT(Refusal("normalizer", Sequence("normalizers", twice, 9)),
              HasSubstr("normalizers[8].type can make text 512 times longer"));
  EXPECT_EQ(Refusal("decoder", Sequence("decoders", twice, 8)), "");
  EXPECT_THAT(Refusal("decoder", Sequence("decoders", twice, 9)),
              HasSubstr("decoders[8].type can make text 512 times longer"));
  EXPECT_THAT(Refusal("normalizer",
                      absl::StrCat(R"({"type":"Prepend",)", R"("prepend":")",
                                   std::string(257, 'x'), "\"}")),
              HasSubstr("can make text 257 times longer"));
  EXPECT_THAT(Refusal("pre_tokenizer",
                      absl::StrCat(R"({"type":"Metaspace","replacement":")",
                                   std::string(257, 'x'), "\"}")),
              HasSubstr("can make text 257 times longer"));
}

TEST(TokenizerLimitsTest, PatternsHaveBoundedLength) {
  EXPECT_EQ(Refusal("normalizer", Replace(std::string(1024, 'a'), "b")), "");
  EXPECT_THAT(Refusal("normalizer", Replace(std::string(1025, 'a'), "b")),
              HasSubstr("1025 bytes, expected at most 1024"));
  EXPECT_THAT(
      Refusal("decoder",
              absl::StrCat(R"({"type":"Strip","start":1,"stop":1,"content":")",
                           std::string(1025, 'a'), "\"}")),
      HasSubstr("1025 bytes, expected at most 1024"));
}

TEST(TokenizerLimitsTest, StepsAreCounted) {
  const auto steps = [](absl::string_view part, absl::string_view key,
                        absl::string_view item, int count) {
    return Refusal(part, Sequence(key, item, count));
  };
  const std::string digits = R"({"type":"Digits"})";
  // The sequence is a step of its own.
  EXPECT_EQ(steps("pre_tokenizer", "pretokenizers", digits, 63), "");
  EXPECT_THAT(steps("pre_tokenizer", "pretokenizers", digits, 64),
              HasSubstr("is step 65, expected at most 64"));
  const std::string nfc = R"({"type":"NFC"})";
  EXPECT_EQ(steps("normalizer", "normalizers", nfc, 64), "");
  EXPECT_THAT(steps("normalizer", "normalizers", nfc, 65),
              HasSubstr("is step 65, expected at most 64"));
  const std::string fuse = R"({"type":"Fuse"})";
  EXPECT_EQ(steps("decoder", "decoders", fuse, 64), "");
  EXPECT_THAT(steps("decoder", "decoders", fuse, 65),
              HasSubstr("is step 65, expected at most 64"));
}

TEST(TokenizerLimitsTest, AFewTokensHaveNoFarIds) {
  const auto vocab = [](int64_t id) {
    return absl::StrCat(R"({"type":"BPE","vocab":{"a":)", id,
                        R"(},"merges":[]})");
  };
  EXPECT_EQ(Refusal("model", vocab(262144)), "");
  EXPECT_THAT(Refusal("model", vocab(262145)),
              HasSubstr("ids up to 262145 for 1 tokens"));
}

std::string AddedToken(int id, absl::string_view content,
                       absl::string_view flag) {
  std::string json =
      absl::StrCat(R"({"id":)", id, R"(,"content":")", content, "\"");
  for (const char* name :
       {"special", "normalized", "single_word", "lstrip", "rstrip"}) {
    absl::StrAppend(&json, ",\"", name, "\":", name == flag ? "true" : "false");
  }
  return absl::StrCat(json, "}");
}

TEST(TokenizerLimitsTest, AddedTokensHaveBoundedLength) {
  const auto added = [](size_t bytes) {
    return Refusal(
        "added_tokens",
        absl::StrCat("[", AddedToken(2, std::string(bytes, 'b'), ""), "]"));
  };
  EXPECT_EQ(added(1024), "");
  EXPECT_THAT(added(1025), HasSubstr("added_tokens[0].content has 1025 bytes, "
                                     "expected at most 1024"));
}

// A token that is white space itself, and takes in more of it.
TEST(TokenizerLimitsTest, WhiteSpaceIsTakenInOnce) {
  const auto ids = [](absl::string_view content, absl::string_view flag,
                      absl::string_view text) {
    const auto tokenizer = ParseTokenizer(
        absl::StrCat("{\"model\":", kModel, ",\"added_tokens\":[",
                     AddedToken(2, content, flag), "]}"),
        "", "t");
    return (*tokenizer)->Encode(text).value();
  };
  EXPECT_THAT(ids("\\t", "lstrip", "a  \t \t a"), ElementsAre(0, 2, 2, 1, 0));
  EXPECT_THAT(ids("\\t", "rstrip", "a  \t \t a"), ElementsAre(0, 1, 1, 2, 0));
  EXPECT_THAT(ids("\\ta", "lstrip", "  \ta \ta"), ElementsAre(2, 2));
  EXPECT_THAT(ids("a\\t", "rstrip", "a\t a\ta"), ElementsAre(2, 2, 0));
}

}  // namespace
}  // namespace espalier
