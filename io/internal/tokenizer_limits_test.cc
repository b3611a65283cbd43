#include "espalier/io/internal/tokenizer_limits.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/sentence_piece_model.h"
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
  EXPECT_EQ(Refusal("normalizer", Sequence("normalizers", twice, 4)), "");
  EXPECT_THAT(Refusal("normalizer", Sequence("normalizers", twice, 5)),
              HasSubstr("normalizers[4].type can make text 32 times longer"));
  // A step that shortens makes no room for others: not all text has its
  // pattern.
  EXPECT_THAT(
      Refusal("normalizer",
              absl::StrCat(R"({"type":"Sequence","normalizers":[)",
                           Replace("aa", "a"), ",", Repeated(twice, 5), "]}")),
      HasSubstr("normalizers[5].type can make text 32 times longer"));
  EXPECT_EQ(Refusal("decoder", Sequence("decoders", twice, 4)), "");
  EXPECT_THAT(Refusal("decoder", Sequence("decoders", twice, 5)),
              HasSubstr("decoders[4].type can make text 32 times longer"));
  EXPECT_THAT(Refusal("normalizer",
                      absl::StrCat(R"({"type":"Prepend",)", R"("prepend":")",
                                   std::string(17, 'x'), "\"}")),
              HasSubstr("can make text 17 times longer"));
  EXPECT_THAT(Refusal("pre_tokenizer",
                      absl::StrCat(R"({"type":"Metaspace","replacement":")",
                                   std::string(17, 'x'), "\"}")),
              HasSubstr("can make text 17 times longer"));
}

TEST(TokenizerLimitsTest, PatternsHaveBoundedLength) {
  EXPECT_EQ(Refusal("normalizer", Replace(std::string(1024, 'a'), "b")), "");
  EXPECT_THAT(Refusal("normalizer", Replace(std::string(1025, 'a'), "b")),
              HasSubstr("1025 bytes, expected at most 1024"));
  EXPECT_THAT(Refusal("normalizer",
                      Replace(std::string(1024, 'a'), std::string(1025, 'b'))),
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
  EXPECT_EQ(steps("pre_tokenizer", "pretokenizers", digits, 15), "");
  EXPECT_THAT(steps("pre_tokenizer", "pretokenizers", digits, 16),
              HasSubstr("is step 17, expected at most 16"));
  const std::string nfc = R"({"type":"NFC"})";
  EXPECT_EQ(steps("normalizer", "normalizers", nfc, 16), "");
  EXPECT_THAT(steps("normalizer", "normalizers", nfc, 17),
              HasSubstr("is step 17, expected at most 16"));
  const std::string replace = Replace("a", "b");
  EXPECT_EQ(steps("normalizer", "normalizers", replace, 16), "");
  EXPECT_THAT(steps("normalizer", "normalizers", replace, 17),
              HasSubstr("is step 17, expected at most 16"));
  const std::string fuse = R"({"type":"Fuse"})";
  EXPECT_EQ(steps("decoder", "decoders", fuse, 16), "");
  EXPECT_THAT(steps("decoder", "decoders", fuse, 17),
              HasSubstr("is step 17, expected at most 16"));
}

std::string Template(int items) {
  return absl::StrCat(
      R"({"type":"TemplateProcessing","pair":[],"special_tokens":{"x":{)"
      R"("id":"x","ids":[0,1],"tokens":[]}},"single":[)",
      Repeated(R"({"SpecialToken":{"id":"x","type_id":0}})", items),
      R"(,{"Sequence":{"id":"A","type_id":0}}]})");
}

TEST(TokenizerLimitsTest, TemplatesAddAFewTokens) {
  EXPECT_EQ(Refusal("post_processor", Template(512)), "");
  EXPECT_THAT(Refusal("post_processor", Template(513)),
              HasSubstr("more than 1024 special tokens"));
  const auto several = [](int items) {
    return absl::StrCat(R"({"type":"Sequence","processors":[)", Template(items),
                        ",", Template(256), "]}");
  };
  EXPECT_EQ(Refusal("post_processor", several(256)), "");
  EXPECT_THAT(Refusal("post_processor", several(257)),
              HasSubstr("more than 1024 special tokens"));
}

// What backtracks over the rest of the text, at every place of it.
TEST(TokenizerLimitsTest, ExpressionsTakeLinearTime) {
  const auto encode = [](absl::string_view expression, size_t bytes) {
    const auto tokenizer = ParseTokenizer(
        absl::StrCat("{\"model\":", kModel,
                     R"(,"pre_tokenizer":{"type":"Split","behavior":)"
                     R"("Isolated","pattern":{"Regex":")",
                     expression, "\"}}}"),
        "", "t");
    return (*tokenizer)->Encode(std::string(bytes, 'a')).status();
  };
  EXPECT_EQ(encode("a+|b", 100'000), absl::OkStatus());
  EXPECT_EQ(encode("a{1,3}", 100'000), absl::OkStatus());
  for (const char* expression : {"a(?=a*a*b)|a", "a(?=(a*)*b)|a"}) {
    EXPECT_EQ(encode(expression, 10), absl::OkStatus()) << expression;
    EXPECT_EQ(encode(expression, 100'000).code(),
              absl::StatusCode::kResourceExhausted)
        << expression;
  }
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
  EXPECT_EQ(added(256), "");
  EXPECT_THAT(added(257), HasSubstr("added_tokens[0].content has 257 bytes, "
                                    "expected at most 256"));
  const auto normalized = ParseTokenizer(
      absl::StrCat("{\"model\":", kModel, ",\"normalizer\":",
                   Replace("a", "aaaa"), ",\"added_tokens\":[",
                   AddedToken(2, std::string(65, 'a'), "normalized"), "]}"),
      "", "t");
  EXPECT_THAT(std::string(normalized.status().message()),
              HasSubstr("has 260 bytes when normalized"));
}

// A piece of a SentencePiece model: its text, a score of 0, its type.
std::string Piece(const std::string& text, char type) {
  const auto with_length = [](char tag, const std::string& bytes) {
    return std::string({tag, static_cast<char>(0x80 | (bytes.size() & 0x7F)),
                        static_cast<char>(bytes.size() >> 7)}) +
           bytes;
  };
  const std::string score_and_type{'\x15', 0, 0, 0, 0, '\x18', type};
  return with_length('\x0A', with_length('\x0A', text) + score_and_type);
}

TEST(TokenizerLimitsTest, PiecesHaveBoundedLength) {
  if (!internal::SentencePieceModel::IsBuiltIn()) {
    GTEST_SKIP() << "this build has no SentencePiece";
  }
  constexpr char kNormal = 1, kUnknown = 2, kControl = 3;
  for (const char type : {kNormal, kControl}) {
    const auto model = [&](size_t bytes) {
      return ParseTokenizer(Piece("<unk>", kUnknown) + Piece("<s>", kControl) +
                                Piece("</s>", kControl) +
                                Piece(std::string(bytes, 'a'), type) +
                                Piece("b", kNormal),
                            "", "t")
          .status();
    };
    EXPECT_EQ(model(256), absl::OkStatus());
    EXPECT_THAT(std::string(model(257).message()),
                HasSubstr("piece 3 has 257 bytes, expected at most 256"));
  }
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
