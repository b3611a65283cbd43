// A data file far larger than what training may hold of it: 200 MB of chats and
// texts are opened, shuffled, encoded and packed in bounded memory.

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "espalier/io/data_set.h"
#include "espalier/io/data_stream.h"
#include "espalier/io/internal/test_util.h"
#include "espalier/tests/checkpoint/sparse_checkpoint.h"
#include "espalier/tests/support/letter_tokenizer.h"

namespace espalier {
namespace {

constexpr int64_t kRecords = 2'000'000;
constexpr int64_t kRecordLetters = 100;

// Above what the process has before it opens the data; 1 byte a record is
// positions, 16 if each had its own.
[[maybe_unused]] constexpr int64_t kMaxBytes = int64_t{16} << 20;

int64_t WriteRecords(const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  std::string letters(static_cast<size_t>(kRecordLetters), 'a');
  int64_t bytes = 0;
  for (int64_t i = 0; i < kRecords; ++i) {
    letters[static_cast<size_t>(i % kRecordLetters)] =
        static_cast<char>('a' + i / kRecordLetters % 4);
    const std::string line = absl::StrCat("{\"text\":\"", letters, "\"}\n");
    file << line;
    bytes += static_cast<int64_t>(line.size());
  }
  return file.good() ? bytes : -1;
}

TEST(DataMemoryTest, ALargeFileStreamsInBoundedMemory) {
  const test::TempDir dir;
  dir.Write("tokenizer.json", test::LetterTokenizer('d'));
  dir.Write("tokenizer_config.json", "{}");
  const int64_t bytes = WriteRecords(dir.Path("data.jsonl"));
  ASSERT_GT(bytes, int64_t{200'000'000});
  DataSetConfig config;
  config.paths = {dir.Path("data.jsonl")};
  const int64_t idle = test::PeakBytes([] { return true; });
  const int64_t peak = test::PeakBytes([&] {
    auto set = OpenDataSet(dir.path(), config);
    if (!set.ok()) return false;
    DataStreamOptions options;
    options.pack_tokens = 8192;
    options.seed = 7;
    auto stream = DataStream::Create(std::move(set->groups), options);
    Pack pack;
    int64_t tokens = 0;
    // Every sixteenth record, in the shuffled order: from all over the file.
    while (stream.ok() && tokens < kRecords / 16 * kRecordLetters) {
      const auto more = (*stream)->Next(&pack);
      if (!more.ok() || !*more) return false;
      tokens += pack.num_tokens;
    }
    return stream.ok();
  });
  ASSERT_GT(peak, 0);
  std::printf("%ld MB of records: %.1f MB above %.1f MB\n",
              static_cast<long>(bytes >> 20),
              static_cast<double>(peak - idle) / (1 << 20),
              static_cast<double>(idle) / (1 << 20));
#if !defined(ESPALIER_ASAN) && !defined(ESPALIER_TSAN)
  EXPECT_LT(peak - idle, kMaxBytes);
#endif
}

}  // namespace
}  // namespace espalier
