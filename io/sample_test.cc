#include "espalier/io/sample.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/byte_tokenizer.h"
#include "espalier/io/internal/chat_test_util.h"
#include "espalier/io/internal/test_util.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SampleTest : public ::testing::Test {
 protected:
  // The text of each sample, trained characters in capitals, or its error.
  std::vector<std::string> Read(const std::string& name,
                                absl::string_view bytes) {
    const auto encoder = MakePlainEncoder(tokenizer_, encoder_options_);
    const auto source =
        OpenRecordSource(dir_.Write(name, bytes), options_, *encoder);
    if (!source.ok()) return {std::string(source.status().message())};
    std::vector<std::string> texts;
    hashes_.clear();
    for (int64_t i = 0; i < (*source)->size(); ++i) {
      const auto sample = (*source)->Get(i);
      if (!sample.ok()) {
        texts.push_back(std::string(sample.status().message()));
        continue;
      }
      hashes_.push_back(sample->content_hash);
      EXPECT_EQ(sample->ids.size(), sample->weights.size());
      std::string text = tokenizer_.Decode(sample->ids);
      for (size_t k = 0; k < text.size(); ++k) {
        if (sample->weights[k] == 1 && text[k] >= 'a' && text[k] <= 'z') {
          text[k] = static_cast<char>(text[k] - 'a' + 'A');
        }
      }
      // The end is trained, the beginning is not.
      if (text.back() == '>') {
        EXPECT_EQ(sample->weights.back(), 1);
      }
      if (text[0] == '<') {
        EXPECT_EQ(sample->weights[0], 0);
      }
      texts.push_back(text);
    }
    return texts;
  }

  test::TempDir dir_;
  test::ByteTokenizer tokenizer_;
  PlainEncoderOptions encoder_options_;
  RecordSourceOptions options_;
  std::vector<uint64_t> hashes_;
};

TEST_F(SampleTest, WhatIsTrained) {
  EXPECT_THAT(Read("a.txt", "ab\ncd\n\nef"), ElementsAre("<AB\nCD>", "<EF>"));
  const char lines[] =
      "{\"prompt\":\"ab\",\"completion\":\"cd\"}\n{\"text\":\"ef\"}\n";
  EXPECT_THAT(Read("a.jsonl", lines), ElementsAre("<abCD>", "<EF>"));
  encoder_options_.train_prompt = true;
  encoder_options_.add_bos = encoder_options_.add_eos = false;
  EXPECT_THAT(Read("a.jsonl", lines), ElementsAre("ABCD", "EF"));
}

// One <s> in front, one end behind; those in the data are text.
TEST_F(SampleTest, SpelledTokensAreText) {
  const test::AddedByteTokenizer tokenizer = test::MakeTokenizer();
  Example example;
  example.kind = Example::Kind::kPromptCompletion;
  example.prompt = "p<s>";
  example.completion = "c<|im_end|>";
  const auto sample = MakePlainEncoder(tokenizer, {})->Encode(example);
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(tokenizer.Decode(sample->ids), "<s>p<s>c<|im_end|><|im_end|>");
  EXPECT_EQ(
      std::count(sample->ids.begin(), sample->ids.end(), *tokenizer.bos_id()),
      1);
  EXPECT_EQ(sample->ids.front(), *tokenizer.bos_id());
  EXPECT_EQ(
      std::count(sample->ids.begin(), sample->ids.end(), *tokenizer.eos_id()),
      1);
  EXPECT_EQ(sample->ids.back(), *tokenizer.eos_id());
  EXPECT_EQ(std::count(sample->weights.begin(), sample->weights.end(), 1.0f),
            12);
  EXPECT_EQ(sample->weights[4], 0);
  EXPECT_EQ(sample->weights[5], 1);
}

TEST_F(SampleTest, OwnFields) {
  options_.fields = {"q", "a"};
  EXPECT_THAT(Read("a.jsonl", "{\"q\":\"ab\",\"a\":\"cd\"}"),
              ElementsAre("<abCD>"));
  options_.fields = {"q", ""};
  EXPECT_THAT(Read("a.jsonl", ""), ElementsAre(HasSubstr("go together")));
}

TEST_F(SampleTest, EqualRecordsHashEqually) {
  Read("a.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\"}\r\n{\"text\":\"a\"}");
  ASSERT_EQ(hashes_.size(), 3u);
  EXPECT_EQ(hashes_[0], hashes_[2]);
  EXPECT_NE(hashes_[0], hashes_[1]);
}

// JSON lines as people have them: every fault is one record, by its place.
// Case D7.
TEST_F(SampleTest, FaultsAreOfOneRecord) {
  EXPECT_THAT(
      Read("a.jsonl",
           "\xEF\xBB\xBF{\"text\":\"x\"}\r\n\n{\"text\":\n{\"text\":\"#\"}\n"
           "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}\n"
           "{\"text\":\"a\",\"text\":\"b\"}\n{\"text\":\"a\xE2\x80\xA8\"}"),
      ElementsAre("<X>", HasSubstr("a.jsonl:3: invalid JSON"),
                  HasSubstr("a.jsonl:4: no token for"),
                  HasSubstr("a.jsonl:5: a chat example needs a chat template"),
                  HasSubstr("stands twice"), "<A\xE2\x80\xA8>"));
  EXPECT_THAT(Read("a.txt", "a\n\n\xff"),
              ElementsAre("<A>", HasSubstr("a.txt:3: not UTF-8")));
}

}  // namespace
}  // namespace espalier
