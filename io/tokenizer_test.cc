#include "espalier/io/tokenizer.h"

#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/byte_level.h"
#include "espalier/io/internal/pattern.h"
#include "espalier/io/internal/sentence_piece_model.h"
#include "espalier/io/internal/test_util.h"
#include "espalier/io/internal/unicode.h"
#include "espalier/io/json_object.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string FixtureDir(const std::string& name) {
  return absl::StrCat(ESPALIER_SOURCE_DIR, "/tests/fixtures/tokenizers/", name);
}

std::vector<int32_t> ToIds(const std::vector<int>& ids) {
  return std::vector<int32_t>(ids.begin(), ids.end());
}

// Holds the tokenizer against lines of tests/oracle/tokenizer_cases.py; number
// of lines that differ.
int CountDifferences(const Tokenizer& tokenizer, const std::string& path,
                     int* num_cases) {
  int differences = 0;
  const std::string lines = test::ReadFile(path);
  for (absl::string_view line :
       absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    const auto json = JsonObject::Parse(line, path);
    if (!json.ok()) {
      ADD_FAILURE() << json.status();
      return ++differences;
    }
    std::string text, decoded;
    std::vector<int> ids;
    EXPECT_TRUE(json->Get("text", &text).ok());
    EXPECT_TRUE(json->Get("decoded", &decoded).ok());
    EXPECT_TRUE(json->Get("ids", &ids).ok());
    std::vector<int> plain_ids = ids;
    EXPECT_TRUE(json->GetOptional("plain_ids", &plain_ids).ok());
    EncodeOptions match;
    match.match_special_tokens = true;
    match.drop_unknown = true;
    EncodeOptions plain = match;
    plain.match_special_tokens = false;
    ++*num_cases;
    const auto got = tokenizer.Encode(text, match);
    const auto got_plain = tokenizer.Encode(text, plain);
    if (got.ok() && *got == ToIds(ids) && got_plain.ok() &&
        *got_plain == ToIds(plain_ids) && tokenizer.Decode(*got) == decoded) {
      continue;
    }
    if (++differences > 5) continue;
    ADD_FAILURE() << line << "\n got "
                  << (got.ok() ? absl::StrJoin(*got, ",")
                               : got.status().ToString())
                  << "\n plain "
                  << (got_plain.ok() ? absl::StrJoin(*got_plain, ",")
                                     : got_plain.status().ToString())
                  << "\n decoded " << (got.ok() ? tokenizer.Decode(*got) : "");
  }
  return differences;
}

class TokenizerFixtureTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("sentence_piece") &&
        !internal::SentencePieceModel::IsBuiltIn()) {
      GTEST_SKIP() << "this build has no SentencePiece";
    }
    auto tokenizer = LoadTokenizer(FixtureDir(GetParam()));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

INSTANTIATE_TEST_SUITE_P(Fixtures, TokenizerFixtureTest,
                         ::testing::Values("byte_level", "byte_fallback",
                                           "metaspace", "sentence_piece"),
                         [](const auto& info) { return info.param; });

TEST_P(TokenizerFixtureTest, EqualsTheReferenceLibrary) {
  int num_cases = 0;
  EXPECT_EQ(
      CountDifferences(*tokenizer_, FixtureDir(GetParam()) + "/cases.jsonl",
                       &num_cases),
      0);
  EXPECT_GE(num_cases, 70);
}

TEST_P(TokenizerFixtureTest, RefusesInvalidUtf8) {
  const auto ids = tokenizer_->Encode("abc\xff");
  EXPECT_EQ(ids.status().message(), "text is not UTF-8 at byte 3");
}

TEST_P(TokenizerFixtureTest, RandomTextComesBack) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::string text = "x";  // no leading space, which Strip takes away
    for (uint32_t i = random() % 40; i > 0; --i) {
      const uint32_t code =
          random() % 2 == 0 ? 32 + random() % 96 : 0x3400 + random() % 0x1000;
      text += code < 128
                  ? std::string(1, static_cast<char>(code))
                  : std::string({static_cast<char>(0xE0 | code >> 12),
                                 static_cast<char>(0x80 | (code >> 6 & 63)),
                                 static_cast<char>(0x80 | (code & 63))});
    }
    const auto ids = tokenizer_->Encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(tokenizer_->Decode(*ids), text);
  }
}

// A rank file is split by a family's expression.
TEST(TokenizerTest, RankFilesEqualTiktoken) {
  const std::string path = FixtureDir("ranks") + "/toy.tiktoken";
  for (const char* family : {"gpt2", "llama3", "qwen", "o200k", "kimi"}) {
    SCOPED_TRACE(family);
    const auto tokenizer = LoadTokenizer(path, family);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    int num_cases = 0;
    EXPECT_EQ(
        CountDifferences(**tokenizer, absl::StrCat(path, "@", family, ".jsonl"),
                         &num_cases),
        0);
    EXPECT_GE(num_cases, 60);
  }
}

// Released tokenizers, which are not in this repository, on hard strings.
TEST(TokenizerTest, ReleasedTokenizersEqualTheirLibraries) {
  const std::string dir =
      absl::StrCat(ESPALIER_SHARED_DIR, "/data/tokenizers/");
  if (!std::filesystem::exists(dir)) {
    GTEST_SKIP() << "no tokenizers at " << dir;
  }
  int num_tokenizers = 0;
  for (const auto& item :
       std::filesystem::directory_iterator(FixtureDir("released"))) {
    // FILE.jsonl or FILE@FAMILY.jsonl
    const std::pair<std::string, std::string> name =
        absl::StrSplit(item.path().stem().string(), absl::MaxSplits('@', 1));
    SCOPED_TRACE(item.path().string());
    const auto tokenizer = LoadTokenizer(dir + name.first, name.second);
    if (absl::IsUnimplemented(tokenizer.status()) &&
        !internal::SentencePieceModel::IsBuiltIn()) {
      continue;
    }
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    int num_cases = 0;
    EXPECT_EQ(CountDifferences(**tokenizer, item.path().string(), &num_cases),
              0);
    EXPECT_GE(num_cases, 30);
    ++num_tokenizers;
  }
  EXPECT_GE(num_tokenizers, 13);
}

// What one thread leaves for the next changes no id.
TEST(TokenizerTest, ThreadsGetTheSameIds) {
  for (const char* name : {"byte_level", "byte_fallback"}) {
    const auto tokenizer = LoadTokenizer(FixtureDir(name));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    std::mt19937 random(8);
    const absl::string_view letters = "garden wall tree 12 it's\n.";
    std::vector<std::string> texts(100);
    std::vector<std::vector<int32_t>> expected(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      for (int n = 0; n < 40; ++n) {
        texts[i] += letters[random() % letters.size()];
      }
      // A tokenizer of its own has met no word before.
      expected[i] =
          LoadTokenizer(FixtureDir(name)).value()->Encode(texts[i]).value();
    }
    ThreadPool pool(4);
    std::vector<std::vector<int32_t>> got(texts.size());
    pool.ParallelFor(static_cast<int64_t>(texts.size()), 1,
                     [&](int64_t begin, int64_t end) {
                       for (int64_t i = begin; i < end; ++i) {
                         const size_t at = static_cast<size_t>(i);
                         auto ids = (*tokenizer)->Encode(texts[at]);
                         if (ids.ok()) got[at] = *std::move(ids);
                       }
                     });
    EXPECT_EQ(got, expected);
  }
}

TEST(TokenizerTest, AFolderWithoutAVocabularySaysWhatIsMissing) {
  const std::string dir = ::testing::TempDir() + "/tokenizer_folder";
  std::filesystem::remove_all(dir);
  EXPECT_THAT(std::string(LoadTokenizer(dir).status().message()),
              HasSubstr("tokenizer_folder: No such file"));
  std::filesystem::create_directories(dir);
  const auto empty = LoadTokenizer(dir);
  EXPECT_TRUE(absl::IsNotFound(empty.status()));
  EXPECT_THAT(std::string(empty.status().message()),
              HasSubstr("expected tokenizer.json, tiktoken.model, a .tiktoken "
                        "file or tokenizer.model"));
  // tokenizer.model is read for what it is.
  std::filesystem::copy(FixtureDir("ranks") + "/toy.tiktoken",
                        dir + "/tokenizer.model");
  EXPECT_THAT(std::string(LoadTokenizer(dir).status().message()),
              HasSubstr("name no family"));
  EXPECT_TRUE(LoadTokenizer(dir, "qwen").ok());
  std::filesystem::copy(FixtureDir("ranks") + "/toy.tiktoken",
                        dir + "/a.tiktoken");
  std::filesystem::copy(FixtureDir("ranks") + "/toy.tiktoken",
                        dir + "/b.tiktoken");
  EXPECT_THAT(std::string(LoadTokenizer(dir, "qwen").status().message()),
              HasSubstr("several rank files, a.tiktoken, b.tiktoken"));
  std::filesystem::copy(FixtureDir("byte_level") + "/tokenizer.json",
                        dir + "/tokenizer.json");
  EXPECT_TRUE(LoadTokenizer(dir).ok());
  std::filesystem::remove_all(dir);
}

TEST(TokenizerTest, BytesThatAreNoModelAreRefused) {
  for (const absl::string_view bytes :
       {absl::string_view("\x0a\x05hello"), absl::string_view("garbage"),
        absl::string_view("\x00\x01", 2)}) {
    const auto tokenizer = ParseTokenizer(bytes, "", "t");
    EXPECT_THAT(std::string(tokenizer.status().message()),
                HasSubstr("t: no SentencePiece model"));
  }
  EXPECT_FALSE(ParseTokenizer("", "", "t").ok());
}

TEST(TokenizerTest, SentencePieceKeepsControlPiecesApart) {
  if (!internal::SentencePieceModel::IsBuiltIn()) {
    GTEST_SKIP() << "this build has no SentencePiece";
  }
  const auto tokenizer = LoadTokenizer(FixtureDir("sentence_piece"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const int32_t inst = (*tokenizer)->IdOf("[INST]").value();
  EXPECT_TRUE((*tokenizer)->IsSpecial(inst));
  EXPECT_FALSE((*tokenizer)->IsSpecial((*tokenizer)->IdOf("[SEP]").value()));
  const auto plain = (*tokenizer)->Encode("[INST] hi").value();
  EXPECT_THAT(plain, ::testing::Not(::testing::Contains(inst)));
  EXPECT_EQ((*tokenizer)->Decode(plain), "[INST] hi");
  EncodeOptions raw;
  raw.add_special_tokens = true;
  raw.match_special_tokens = true;
  const auto ids = (*tokenizer)->Encode("[INST]hi</s>", raw).value();
  EXPECT_EQ(ids.front(), (*tokenizer)->bos_id());
  EXPECT_EQ(ids.back(), (*tokenizer)->eos_id());
  EXPECT_EQ(ids[1], inst);
  EXPECT_EQ((*tokenizer)->Decode(ids), "<s>[INST]hi</s>");
  EXPECT_EQ((*tokenizer)->Decode(ids, /*skip_special_tokens=*/true), "hi");
  EXPECT_EQ((*tokenizer)->TokenOf(100000), "");
  EXPECT_EQ((*tokenizer)->IdOf("no such piece"), std::nullopt);
}

TEST(TokenizerTest, SpecialTokensAreOfferedAndKeptApart) {
  const auto tokenizer = LoadTokenizer(FixtureDir("byte_level"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const int32_t bos = (*tokenizer)->IdOf("<|bos|>").value();
  const int32_t eos = (*tokenizer)->IdOf("<|eos|>").value();
  EXPECT_TRUE((*tokenizer)->IsSpecial(bos));
  EXPECT_FALSE((*tokenizer)->IsSpecial(0));
  EXPECT_EQ((*tokenizer)->TokenOf(bos), "<|bos|>");
  EXPECT_EQ((*tokenizer)->TokenOf(1 << 30), "");
  EXPECT_EQ((*tokenizer)->TokenOf(-1), "");
  EncodeOptions match;
  match.match_special_tokens = true;
  EXPECT_THAT((*tokenizer)->Encode("<|eos|>", match).value(), ElementsAre(eos));
  const auto plain = (*tokenizer)->Encode("<|eos|>").value();
  EXPECT_GT(plain.size(), 1u);
  EXPECT_EQ((*tokenizer)->Decode(plain), "<|eos|>");
  EncodeOptions add;
  add.add_special_tokens = true;
  const auto framed = (*tokenizer)->Encode("a", add).value();
  EXPECT_EQ(framed.front(), bos);
  EXPECT_EQ(framed.back(), eos);
  EXPECT_EQ((*tokenizer)->Decode(framed, /*skip_special_tokens=*/true), "a");
  EXPECT_FALSE((*tokenizer)->bos_id().has_value());
}

TEST(TokenizerTest, NamedAddedTokensAreTextWhereAsked) {
  const auto tokenizer = LoadTokenizer(FixtureDir("byte_level"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<std::string> names;
  for (const AddedToken& token : (*tokenizer)->added_tokens()) {
    names.push_back(token.content);
    EXPECT_EQ((*tokenizer)->IdOf(token.content), token.id);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("<|bos|>", "<|eos|>", "garden wall",
                                            "<mask>", "<|eos|>x"));
  const int32_t mask = *(*tokenizer)->IdOf("<mask>");
  const int32_t eos = *(*tokenizer)->IdOf("<|eos|>");
  const absl::flat_hash_set<int32_t> text = {mask, eos};
  EncodeOptions options;
  options.match_special_tokens = true;
  EXPECT_THAT(*(*tokenizer)->Encode("<|eos|><mask>", options),
              ::testing::ElementsAre(eos, mask));
  options.unmatched_tokens = &text;
  const auto ids = (*tokenizer)->Encode("<|eos|><mask>", options);
  EXPECT_THAT(*ids, ::testing::Not(::testing::Contains(mask)));
  EXPECT_THAT(*ids, ::testing::Not(::testing::Contains(eos)));
  EXPECT_EQ((*tokenizer)->Decode(*ids), "<|eos|><mask>");
}

TEST(TokenizerTest, ReadsBosAndEosOfTheConfig) {
  const std::string json =
      test::ReadFile(FixtureDir("byte_fallback") + "/tokenizer.json");
  const auto tokenizer = ParseTokenizer(
      json, R"({"bos_token":"<s>","eos_token":{"content":"</s>"},"x":1})", "t");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->bos_id(), 1);
  EXPECT_EQ((*tokenizer)->eos_id(), 2);
  const auto bad = ParseTokenizer(json, R"({"bos_token":"<none>"})", "t");
  EXPECT_THAT(std::string(bad.status().message()),
              HasSubstr("bos_token \"<none>\" is not in the vocabulary"));
}

// A tokenizer.json with one part replaced.
std::string Refusal(absl::string_view key, absl::string_view part) {
  std::string json = "{\"version\":\"1.0\"";
  for (const auto& [name, value] :
       std::vector<std::pair<absl::string_view, absl::string_view>>{
           {"normalizer", "null"},
           {"pre_tokenizer", "null"},
           {"decoder", "{\"type\":\"Fuse\"}"},
           {"post_processor", "null"},
           {"added_tokens", "[]"},
           {"model",
            "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
            "\"merges\":[\"a b\"]}"}}) {
    absl::StrAppend(&json, ",\"", name, "\":", name == key ? part : value);
  }
  const auto tokenizer = ParseTokenizer(absl::StrCat(json, "}"), "", "t");
  return tokenizer.ok() ? "" : std::string(tokenizer.status().message());
}

TEST(TokenizerTest, NamesWhatItDoesNotKnow) {
  EXPECT_EQ(Refusal("", ""), "");
  EXPECT_EQ(Refusal("normalizer", R"({"type":"NFKC"})"),
            "t: normalizer.type is \"NFKC\", which is not supported");
  EXPECT_EQ(Refusal("normalizer",
                    R"({"type":"Sequence","normalizers":[{"type":"BertX"}]})"),
            "t: normalizer.normalizers[0].type is \"BertX\", which is not "
            "supported");
  EXPECT_EQ(Refusal("normalizer", R"({"type":"NFC","odd":1})"),
            "t: normalizer.odd is not supported");
  EXPECT_THAT(Refusal("normalizer", R"({"type":"Replace","content":"x",
                        "pattern":{"Regex":"a"}})"),
              HasSubstr("pattern other than a String"));
  EXPECT_THAT(Refusal("pre_tokenizer", R"({"type":"Punctuation"})"),
              HasSubstr("\"Punctuation\""));
  EXPECT_THAT(Refusal("pre_tokenizer", R"({"type":"Metaspace",
                        "replacement":"_","prepend_scheme":"last"})"),
              HasSubstr("prepend_scheme is \"last\""));
  EXPECT_THAT(Refusal("pre_tokenizer", R"({"type":"Sequence","pretokenizers":[
                        {"type":"Digits"},{"type":"Metaspace",
                        "replacement":"_"}]})"),
              HasSubstr("is Metaspace behind a Split"));
  EXPECT_THAT(Refusal("pre_tokenizer", R"({"type":"Split","pattern":
                        {"Regex":"a"},"behavior":"Removed"})"),
              HasSubstr("behavior is \"Removed\""));
  EXPECT_THAT(Refusal("pre_tokenizer", R"({"type":"Split","pattern":
                        {"Regex":"(a"},"behavior":"Isolated"})"),
              HasSubstr("regular expression \"(a\""));
  EXPECT_THAT(Refusal("pre_tokenizer", R"({"type":"Split","pattern":
                        {"Regex":"[a&&b]"},"behavior":"Isolated"})"),
              HasSubstr("&&"));
  EXPECT_THAT(Refusal("decoder", R"({"type":"WordPiece"})"),
              HasSubstr("decoder.type is \"WordPiece\""));
  EXPECT_THAT(Refusal("post_processor", R"({"type":"BertProcessing"})"),
              HasSubstr("\"BertProcessing\""));
  EXPECT_THAT(Refusal("model", R"({"type":"Unigram"})"),
              HasSubstr("model.type is \"Unigram\""));
  EXPECT_THAT(Refusal("model", R"({"type":"BPE","dropout":0.1,"vocab":{},
                        "merges":[]})"),
              HasSubstr("model.dropout is not supported"));
}

TEST(TokenizerTest, RefusesContradictions) {
  const auto model = [](absl::string_view vocab, absl::string_view merges) {
    return Refusal("model", absl::StrCat("{\"type\":\"BPE\",\"vocab\":", vocab,
                                         ",\"merges\":", merges, "}"));
  };
  EXPECT_THAT(model(R"({"a":0,"b":0})", "[]"), HasSubstr("gives id 0"));
  EXPECT_THAT(model(R"({"":0})", "[]"), HasSubstr("gives id 0"));
  EXPECT_THAT(model(R"({"a":-1})", "[]"), HasSubstr("\"a\" an id"));
  EXPECT_THAT(model(R"({"a":1e3})", "[]"), HasSubstr("\"a\" an id"));
  EXPECT_THAT(model(R"({"a":4000000000})", "[]"), HasSubstr("\"a\" an id"));
  EXPECT_THAT(model("[]", "[]"), HasSubstr("vocab is no object"));
  EXPECT_THAT(model(R"({"a":0})", "{}"), HasSubstr("merges is no array"));
  for (const char* merge : {"\"a\"", "\"a b c\"", "1", "[\"a\"]", "[\"a\",1]",
                            "[\"a\",\"b\",\"c\"]"}) {
    EXPECT_THAT(model(R"({"a":0,"b":1,"ab":2})", absl::StrCat("[", merge, "]")),
                HasSubstr("item 0 is not two tokens"));
  }
  EXPECT_THAT(model(R"({"a":0,"b":1})", "[\"a b\"]"),
              HasSubstr("(\"a\", \"b\") is not in the vocabulary"));
  const auto added = [](absl::string_view tokens) {
    std::string list;
    for (absl::string_view token : absl::StrSplit(tokens, ';')) {
      absl::StrAppend(&list, list.empty() ? "" : ",", "{", token,
                      ",\"special\":true,\"normalized\":false,\"single_word\":"
                      "false,\"lstrip\":false,\"rstrip\":false}");
    }
    return Refusal("added_tokens", absl::StrCat("[", list, "]"));
  };
  EXPECT_EQ(added(R"("id":3,"content":"c")"), "");
  EXPECT_EQ(added(R"("id":2,"content":"ab")"), "");
  for (const char* tokens :
       {R"("id":2,"content":"c")", R"("id":3,"content":"ab")",
        R"("id":3,"content":"c";"id":3,"content":"d")",
        R"("id":3,"content":"c";"id":4,"content":"c")"}) {
    EXPECT_THAT(added(tokens), HasSubstr("contradicts another token"));
  }
}

TEST(TokenizerTest, ACharacterWithoutATokenIsAnError) {
  const auto tokenizer = ParseTokenizer(
      R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]}})", "", "t");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->Encode("aa").value(), ElementsAre(0, 0));
  EXPECT_EQ((*tokenizer)->Encode("ab").status().message(),
            "no token for \"b\"");
  EncodeOptions drop;
  drop.drop_unknown = true;
  EXPECT_THAT((*tokenizer)->Encode("aba", drop).value(), ElementsAre(0, 0));
  EXPECT_THAT((*tokenizer)->Encode("").value(), IsEmpty());
}

TEST(TokenizerTest, RandomBytesNeverCrash) {
  const std::string good =
      test::ReadFile(FixtureDir("byte_level") + "/tokenizer.json");
  std::mt19937 random(9);
  for (int round = 0; round < 300; ++round) {
    std::string json = good;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      // Mostly in the parts before the vocabulary.
      json[random() % (random() % 4 == 0 ? json.size() : 2500)] =
          static_cast<char>(random() % 128);
    }
    const auto tokenizer = ParseTokenizer(json, "", "t");
    if (!tokenizer.ok()) continue;
    const auto ids = (*tokenizer)->Encode("garden wall 12 <|eos|> \xC3\xA9");
    if (ids.ok()) (*tokenizer)->Decode(*ids);
  }
}

TEST(ByteLevelTest, EveryByteHasItsOwnChar) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(internal::CharsToBytes(internal::BytesToChars(all)), all);
  EXPECT_EQ(internal::BytesToChars(" \n"), "\xC4\xA0\xC4\x8A");
  EXPECT_EQ(internal::CharsToBytes("a b"), "a b");
}

TEST(PatternTest, SpellsOutWhatPcreReadsDifferently) {
  EXPECT_EQ(internal::TranslatePattern("[^\\s\\p{L}]+\\d\\u4e00").value(),
            "[^\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}"
            "\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}\\p{L}]+[\\p{Nd}]"
            "\\x{4e00}");
  EXPECT_TRUE(internal::TranslatePattern("[]a]").ok());
  EXPECT_EQ(internal::TranslatePattern("[\\p{L}&&[^\\p{Han}x]]+").value(),
            "(?:(?![\\p{sc:Han}x])[\\p{L}])+");
  EXPECT_EQ(internal::TranslatePattern("[ab&&[b\\d]]").value(),
            "(?:(?=[b\\p{Nd}])[ab])");
  for (const char* pattern :
       {"[a[b]]", "[[:alpha:]]", "\\h", "^a", "a$", "[\\S]", "a{1,2}+", "\\",
        "(?<n>a)", "\\u12", "\\K", "\\b", "[a&&b]", "[^a&&[b]]", "[a&&[b]c]",
        "[&&[b]]", "[a&&[b]&&[c]]"}) {
    EXPECT_EQ(internal::TranslatePattern(pattern).status().code(),
              absl::StatusCode::kUnimplemented)
        << pattern;
  }
}

TEST(UnicodeTest, ComposesCanonically) {
  using internal::ToNfc;
  EXPECT_EQ(ToNfc("e\xCC\x81"), "\xC3\xA9");
  // Marks sort by class before they compose; a blocked mark stays.
  EXPECT_EQ(ToNfc("a\xCC\x87\xCC\xA3"), "\xE1\xBA\xA1\xCC\x87");
  EXPECT_EQ(ToNfc("a\xCC\x85\xCC\x81"), "a\xCC\x85\xCC\x81");
  EXPECT_EQ(ToNfc("\xE2\x84\xAB"), "\xC3\x85");             // Angstrom sign
  EXPECT_EQ(ToNfc("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"),  // jamo
            "\xEA\xB0\x81");
  EXPECT_EQ(ToNfc("\xEA\xB0\x80\xE1\x86\xA8"), "\xEA\xB0\x81");
  EXPECT_EQ(ToNfc("\xE0\xA5\x98"), "\xE0\xA4\x95\xE0\xA4\xBC");  // excluded
  EXPECT_EQ(ToNfc("plain"), "plain");
  EXPECT_TRUE(internal::IsWordChar('a'));
  EXPECT_TRUE(internal::IsWordChar('_'));
  EXPECT_TRUE(internal::IsWordChar(0x4E00));
  EXPECT_FALSE(internal::IsWordChar('-'));
  EXPECT_FALSE(internal::IsWordChar(0x10FFFF));
  EXPECT_TRUE(internal::IsWhiteSpace(0x3000));
  EXPECT_FALSE(internal::IsWhiteSpace(0x180E));
}

}  // namespace
}  // namespace espalier
