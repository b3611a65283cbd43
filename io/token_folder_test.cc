#include "espalier/io/token_folder.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"
#include "espalier/io/json.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

std::vector<EncodedSample> Samples(float weight) {
  std::vector<EncodedSample> samples;
  for (int32_t i = 0; i < 20; ++i) {
    EncodedSample sample;
    for (int32_t k = 0; k < i % 7; ++k) {
      sample.ids.push_back(10 * i + k);
      sample.weights.push_back(k % 2 == 0 ? weight : 0);
    }
    sample.content_hash = ~uint64_t{0} - static_cast<uint64_t>(i);
    samples.push_back(std::move(sample));
  }
  return samples;
}

absl::Status Write(const std::string& dir,
                   const std::vector<EncodedSample>& samples) {
  auto writer = TokenFolderWriter::Create(dir, "tok", 200, /*shard_tokens=*/9);
  if (!writer.ok()) return writer.status();
  for (const EncodedSample& sample : samples) {
    absl::Status status = writer->Add(sample);
    if (!status.ok()) return status;
  }
  return writer->Finish();
}

TEST(TokenFolderTest, ComesBackBitForBit) {
  for (const float weight : {1.0f, 0.375f}) {
    const test::TempDir dir;
    const std::vector<EncodedSample> samples = Samples(weight);
    ASSERT_EQ(Write(dir.Path("t"), samples), absl::OkStatus());
    EXPECT_TRUE(IsTokenFolder(dir.Path("t")));
    TokenFolderInfo info;
    const auto source = OpenTokenFolder(dir.Path("t"), &info);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ(info.tokenizer, "tok");
    EXPECT_EQ(info.vocab_size, 200);
    EXPECT_EQ(info.num_tokens, 57);
    ASSERT_EQ((*source)->size(), 20);
    for (int64_t i = 0; i < 20; ++i) {
      const auto sample = (*source)->Get(i);
      ASSERT_TRUE(sample.ok()) << sample.status();
      const EncodedSample& expected = samples[static_cast<size_t>(i)];
      EXPECT_EQ(sample->ids, expected.ids);
      EXPECT_EQ(sample->weights, expected.weights);
      EXPECT_EQ(sample->content_hash, expected.content_hash);
      EXPECT_EQ(*(*source)->Hash(i), expected.content_hash);
    }
    EXPECT_FALSE(Write(dir.Path("t"), samples).ok());  // exists already
  }
}

TEST(TokenFolderTest, NothingAppearsOfAFailedWrite) {
  const test::TempDir dir;
  for (const auto& [sample, what] :
       std::vector<std::pair<EncodedSample, std::string>>{
           {{{1, 200}, {1, 1}, {}, 0}, "token id 200, expected 0 .. 199"},
           {{{-1}, {1}, {}, 0}, "token id -1"},
           {{{1}, {-1}, {}, 0}, "weight -1"},
           {{{1}, {NAN}, {}, 0}, "weight nan"},
           {{{1, 2}, {1}, {}, 0}, "2 tokens and 1 weights"}}) {
    EXPECT_THAT(std::string(Write(dir.Path("t"), {{}, sample}).message()),
                HasSubstr("sample 1: " + what));
    EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  }
}

TEST(TokenFolderTest, ForeignFoldersAreRefused) {
  const test::TempDir dir;
  ASSERT_EQ(Write(dir.Path("t"), Samples(1)), absl::OkStatus());
  const std::string manifest = test::ReadFile(dir.Path("t/tokens.json"));
  const auto open = [&] {
    return std::string(OpenTokenFolder(dir.Path("t")).status().message());
  };
  const auto replace = [&](const std::string& from, const std::string& to) {
    std::string text = manifest;
    text.replace(text.find(from), from.size(), to);
    dir.Write("t/tokens.json", text);
    return open();
  };
  EXPECT_THAT(replace("\"version\": 1", "\"version\": 2"),
              HasSubstr("expected espalier.tokens 1"));
  EXPECT_THAT(replace("\"num_tokens\": 57", "\"num_tokens\": 58"),
              HasSubstr("57 tokens, expected 20 and 58"));
  EXPECT_THAT(replace("\"num_samples\": 5",
                      "\"num_samples\": " + absl::StrCat(INT64_MAX)),
              HasSubstr("9223372036854775807 samples"));
  EXPECT_THAT(replace("tokens-00001", "../t/tokens-00001"),
              HasSubstr("../t/tokens-00001"));
  EXPECT_THAT(replace("tokens-00001", "tokens-00002"), HasSubstr("expected"));
  EXPECT_THAT(replace("tokens-00001", "tokens-01001"),
              HasSubstr("tokens-01001"));
  // Ids the manifest does not allow come out when they are read.
  EXPECT_EQ(replace("\"vocab_size\": 200", "\"vocab_size\": 150"), "");
  const auto source = OpenTokenFolder(dir.Path("t"));
  ASSERT_TRUE(source.ok());
  EXPECT_TRUE((*source)->Get(13).ok());
  EXPECT_THAT(std::string((*source)->Get(19).status().message()),
              HasSubstr("expected an id below 150"));
  EXPECT_FALSE(IsTokenFolder(dir.path()));
  EXPECT_EQ(OpenTokenFolder(dir.path()).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace espalier
