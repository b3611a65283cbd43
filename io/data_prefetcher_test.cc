#include "espalier/io/data_prefetcher.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/byte_tokenizer.h"
#include "espalier/io/internal/test_util.h"
#include "espalier/io/sample.h"

namespace espalier {
namespace {

class DataPrefetcherTest : public ::testing::Test {
 protected:
  DataPrefetcherTest() {
    std::string text;
    for (int i = 0; i < 200; ++i) {
      absl::StrAppend(&text, "{\"text\":\"",
                      std::string(static_cast<size_t>(i * 7 % 23), 'x'), i,
                      "\"}\n");
    }
    good_ = dir_.Write("good.jsonl", text);
    bad_ = dir_.Write("bad.jsonl", absl::StrCat(text, "{\n"));
  }

  std::unique_ptr<DataStream> Stream(const std::string& path) {
    std::vector<DataGroup> groups(1);
    groups[0].sources.push_back(
        *OpenRecordSource(path, RecordSourceOptions(), *encoder_));
    DataStreamOptions options;
    options.pack_tokens = 40;
    options.num_epochs = 2;
    return *DataStream::Create(std::move(groups), options);
  }

  test::TempDir dir_;
  test::ByteTokenizer tokenizer_;
  std::unique_ptr<SampleEncoder> encoder_ =
      MakePlainEncoder(tokenizer_, PlainEncoderOptions());
  std::string good_;
  std::string bad_;
};

TEST_F(DataPrefetcherTest, EqualsTheStreamReadDirectly) {
  for (const int64_t depth : {1, 3, 1000}) {
    const auto direct = Stream(good_);
    DataPrefetcher ahead(Stream(good_), depth);
    Pack expected, pack;
    while (true) {
      EXPECT_EQ(*WriteJson(ahead.Cursor()), *WriteJson(direct->Cursor()));
      EXPECT_EQ(ahead.report().num_packs, direct->report().num_packs);
      const auto more = direct->Next(&expected);
      ASSERT_TRUE(more.ok());
      EXPECT_TRUE(ahead.Peek().ok());
      ASSERT_EQ(*ahead.Next(&pack), *more);
      if (!*more) break;
      EXPECT_EQ(pack.ToBatch().ids, expected.ToBatch().ids);
    }
    EXPECT_FALSE(*ahead.Next(&pack));  // stays
  }
}

TEST_F(DataPrefetcherTest, EndsWhileTheThreadWorks) {
  for (int i = 0; i < 20; ++i) {
    DataPrefetcher ahead(Stream(good_), 5);
    Pack pack;
    if (i % 2 == 1) {
      EXPECT_TRUE(*ahead.Next(&pack));
    }
  }
}

TEST_F(DataPrefetcherTest, FailureComesInItsPlaceAndStays) {
  const auto direct = Stream(bad_);
  DataPrefetcher ahead(Stream(bad_), 4);
  Pack expected, pack;
  while (true) {
    const auto more = direct->Next(&expected);
    EXPECT_EQ(ahead.Peek(), more.status());
    const auto other = ahead.Next(&pack);
    ASSERT_EQ(other.status(), more.status());
    if (!more.ok()) break;
  }
  EXPECT_FALSE(ahead.Peek().ok());
  EXPECT_EQ(ahead.Next(&pack).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace espalier
