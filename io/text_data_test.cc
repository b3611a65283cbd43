#include "espalier/io/text_data.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/byte_tokenizer.h"
#include "espalier/io/internal/test_util.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TextDataTest : public ::testing::Test {
 protected:
  // The documents of a file with this text, decoded.
  std::vector<std::string> Read(const std::string& name,
                                absl::string_view text) {
    const auto documents = ReadTokenDocuments(dir_.Write(name, text),
                                              tokenizer_, options_, &report_);
    if (!documents.ok()) return {std::string(documents.status().message())};
    std::vector<std::string> texts;
    texts.reserve(static_cast<size_t>(documents->size()));
    for (int64_t i = 0; i < documents->size(); ++i) {
      texts.push_back(tokenizer_.Decode((*documents)[i]));
    }
    return texts;
  }

  test::TempDir dir_;
  test::ByteTokenizer tokenizer_;
  TextFileOptions options_;
  TextFileReport report_;
};

TokenDocuments Documents(std::initializer_list<int> sizes) {
  TokenDocuments documents;
  int32_t next = 0;
  for (const int size : sizes) {
    std::vector<int32_t> document(static_cast<size_t>(size));
    std::iota(document.begin(), document.end(), next);
    next += size;
    documents.Add(document);
  }
  return documents;
}

TEST_F(TextDataTest, BlankLinesSeparatePlainText) {
  EXPECT_THAT(Read("t.txt", "\xEF\xBB\xBF\n\na\nb\r\n \t\n\nc\r\n\r\nd"),
              ElementsAre("<a\nb>", "<c>", "<d>"));
  EXPECT_EQ(report_.num_documents, 3);
  EXPECT_EQ(report_.num_lines, 9);
}

TEST_F(TextDataTest, OtherBoundaries) {
  options_.add_bos = options_.add_eos = false;
  options_.boundary = TextFileOptions::Boundary::kNone;
  EXPECT_THAT(Read("t.txt", "a\n\nb\n"), ElementsAre("a\n\nb"));
  options_.boundary = TextFileOptions::Boundary::kSeparator;
  EXPECT_THAT(Read("t.txt", "a\n"), ElementsAre("the document separator is "
                                                "empty"));
  options_.separator = "---";
  EXPECT_THAT(Read("t.txt", "---\na\n\n---\n----\nb"),
              ElementsAre("a\n", "----\nb"));
}

TEST_F(TextDataTest, JsonLines) {
  const char line_separator[] = "{\"text\":\"x\xE2\x80\xA8y\"}";
  EXPECT_THAT(
      Read("t.jsonl", absl::StrCat("\xEF\xBB\xBF{\"text\":\"a\\nb\"}\r\n\n  \n",
                                   line_separator,
                                   "\n{\"id\":1,\"text\":\"\"}\n"
                                   "{\"text\":\"c\"}")),
      ElementsAre("<a\nb>", "<x\xE2\x80\xA8y>", "<c>"));
  EXPECT_EQ(report_.num_empty, 1);
  EXPECT_EQ(report_.num_lines, 6);
}

TEST_F(TextDataTest, ErrorsNameFileAndLine) {
  for (const auto& [line, what] :
       std::vector<std::pair<std::string, std::string>>{
           {"{\"text\":", "invalid JSON"},
           {"[1]", "is an array, expected an object"},
           {"{\"txt\":\"a\"}", "text is missing"},
           {"{\"text\":1}", "text is 1, expected a string"},
           {"{\"text\":\"a\",\"text\":\"b\"}", "stands twice"},
           {"{\"text\":\"\xff\"}", "invalid JSON"},
           {"{\"text\":\"#\"}", "no token for"}}) {
    EXPECT_THAT(Read("t.jsonl", "{\"text\":\"a\"}\n\n" + line + "\n"),
                ElementsAre(AllOf(HasSubstr("t.jsonl:3: "), HasSubstr(what))))
        << line;
  }
  EXPECT_THAT(Read("t.txt", "a\nb\n\xff\n"),
              ElementsAre(HasSubstr("t.txt:3: not UTF-8")));
  EXPECT_THAT(Read("t.txt", "a\n\nb\n#\n"),
              ElementsAre(HasSubstr("t.txt:3: no token for")));
  EXPECT_THAT(Read("t.txt", "\n\n"),
              ElementsAre(HasSubstr("t.txt: no document in 2 lines")));
  EXPECT_THAT(Read("t.txt", ""), ElementsAre(HasSubstr("no document")));
  EXPECT_EQ(ReadTokenDocuments(dir_.Path("none"), tokenizer_, options_)
                .status()
                .code(),
            absl::StatusCode::kNotFound);
}

TEST_F(TextDataTest, BadLinesAreCountedOnDemand) {
  options_.skip_bad_lines = true;
  EXPECT_THAT(Read("t.jsonl", "{\n{\"text\":\"a\"}\n{}\n"), ElementsAre("<a>"));
  EXPECT_EQ(report_.num_bad_lines, 2);
  EXPECT_THAT(report_.first_bad_line, HasSubstr("t.jsonl:1: invalid JSON"));
}

TEST_F(TextDataTest, RandomBytesNeverCrash) {
  std::mt19937 random(11);
  const std::string good = "{\"text\":\"a\\u00e9\"}\r\n\n{\"text\":\"b\"}\n";
  for (int round = 0; round < 2000; ++round) {
    std::string text = good;
    text[random() % text.size()] = static_cast<char>(random());
    Read(round % 2 == 0 ? "t.jsonl" : "t.txt", text);
  }
}

TEST(SplitHeldOutTest, SplitsDocuments) {
  const TokenDocuments documents = Documents({3, 1, 4, 1, 5, 9, 2, 6, 5, 3});
  const auto split = SplitHeldOut(documents, 0.3, /*seed=*/1);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->held_out.size(), 3);
  EXPECT_EQ(split->train.size(), 7);
  std::set<int32_t> seen(split->train.tokens.begin(),
                         split->train.tokens.end());
  seen.insert(split->held_out.tokens.begin(), split->held_out.tokens.end());
  EXPECT_EQ(seen.size(), documents.tokens.size());
  EXPECT_TRUE(
      std::is_sorted(split->train.tokens.begin(), split->train.tokens.end()));
  const auto again = SplitHeldOut(documents, 0.3, 1);
  EXPECT_EQ(again->train.tokens, split->train.tokens);
  const auto other = SplitHeldOut(documents, 0.3, 2);
  EXPECT_NE(other->train.tokens, split->train.tokens);
}

TEST(SplitHeldOutTest, SplitsASingleDocumentAtItsEnd) {
  const auto split = SplitHeldOut(Documents({10}), 0.2, 1);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_THAT(split->held_out.tokens, ElementsAre(8, 9));
  EXPECT_EQ(split->train.tokens.size(), 8u);
}

TEST(SplitHeldOutTest, Limits) {
  EXPECT_EQ(SplitHeldOut(Documents({2, 2}), 0, 1)->train.size(), 2);
  EXPECT_EQ(SplitHeldOut(Documents({2, 2}), 0.001, 1)->held_out.size(), 1);
  EXPECT_EQ(SplitHeldOut(Documents({2, 2}), 0.999, 1)->train.size(), 1);
  for (const double fraction : {-0.1, 1.0, std::nan("")}) {
    EXPECT_FALSE(SplitHeldOut(Documents({2, 2}), fraction, 1).ok());
  }
  EXPECT_FALSE(SplitHeldOut(Documents({1}), 0.5, 1).ok());
  EXPECT_FALSE(SplitHeldOut(TokenDocuments(), 0.5, 1).ok());
}

TEST(ShuffledOrderTest, IsAPermutationOfItsOwnForEachEpoch) {
  std::vector<int64_t> order = ShuffledOrder(100, 7, 0);
  EXPECT_EQ(order, ShuffledOrder(100, 7, 0));
  EXPECT_NE(order, ShuffledOrder(100, 7, 1));
  EXPECT_NE(order, ShuffledOrder(100, 8, 0));
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(TokenBatchTest, KeepsDocumentsApart) {
  const TokenDocuments documents = Documents({3, 1, 5});
  const std::vector<TokenSample> samples = CutSamples(documents, 4);
  ASSERT_EQ(samples.size(), 4u);  // 3 | 1 | 4 + 1
  const auto packs = PackSamples(samples, {2, 0, 1, 3}, /*budget_tokens=*/5);
  ASSERT_TRUE(packs.ok()) << packs.status();
  ASSERT_EQ(packs->size(), 2u);
  EXPECT_THAT((*packs)[0].samples, ElementsAre(2));
  EXPECT_THAT((*packs)[1].samples, ElementsAre(0, 1, 3));
  EXPECT_EQ((*packs)[1].num_tokens, 5);
  const TokenBatch cut = MakeTokenBatch(documents, samples, (*packs)[0]);
  EXPECT_THAT(cut.ids, ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(cut.labels, ElementsAre(5, 6, 7, 8));
  const TokenBatch batch = MakeTokenBatch(documents, samples, (*packs)[1]);
  EXPECT_THAT(batch.ids, ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(batch.labels, ElementsAre(1, 2, -100, -100, -100));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 0, 0));
  EXPECT_THAT(batch.cu_seqlens, ElementsAre(0, 3, 4, 5));
}

TEST(TokenBatchTest, EveryTokenIsATargetOnceWhateverTheCut) {
  const TokenDocuments documents = Documents({37, 51, 40, 1, 2});
  for (const int64_t max_tokens : {1, 7, 16, 51, 100}) {
    const auto samples = CutSamples(documents, max_tokens);
    const auto order =
        ShuffledOrder(static_cast<int64_t>(samples.size()), 3, 0);
    const auto packs =
        PackSamples(samples, order, std::max<int64_t>(max_tokens, 20));
    ASSERT_TRUE(packs.ok()) << packs.status();
    std::multiset<int32_t> targets;
    size_t num_tokens = 0;
    for (const SamplePack& pack : *packs) {
      const TokenBatch batch = MakeTokenBatch(documents, samples, pack);
      num_tokens += batch.ids.size();
      for (const int32_t label : batch.labels) {
        if (label != kIgnoreLabel) targets.insert(label);
      }
    }
    EXPECT_EQ(num_tokens, documents.tokens.size());
    EXPECT_EQ(targets.size(), documents.tokens.size() - 5);
    EXPECT_EQ(std::set<int32_t>(targets.begin(), targets.end()).size(),
              targets.size());
  }
}

TEST(TokenBatchTest, RefusesASampleAboveTheBudget) {
  const auto samples = CutSamples(Documents({8}), 8);
  const auto packs = PackSamples(samples, {0}, 7);
  EXPECT_EQ(packs.status().message(),
            "sample 0 has 8 tokens, the budget of a batch is 7");
}

}  // namespace
}  // namespace espalier
