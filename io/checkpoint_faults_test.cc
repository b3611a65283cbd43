// Faults that other tools have let through, each with a checkpoint that shows
// it (F1 to F8 of the list that the names follow; F9 and F12 are with the
// packed formats).
#include <sys/resource.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/checkpoint_reader.h"
#include "espalier/io/checkpoint_writer.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/internal/test_util.h"
#include "espalier/io/tied_weights.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Entry(absl::string_view name, absl::string_view dtype,
                  absl::string_view shape, int64_t begin, int64_t end) {
  return absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype,
                      "\",\"shape\":", shape, ",\"data_offsets\":[", begin, ",",
                      end, "]}");
}

// A file with these entries.
std::string FileOf(const std::vector<std::string>& entries,
                   absl::string_view data) {
  return test::SafetensorsBytes(
      absl::StrCat("{", absl::StrJoin(entries, ","), "}"), data);
}

// One f32 tensor of shape [1] for each name.
std::string File(const std::vector<std::pair<std::string, float>>& tensors,
                 absl::string_view metadata = "") {
  std::string json = absl::StrCat("{", metadata);
  std::string data;
  for (const auto& [name, value] : tensors) {
    const int64_t at = static_cast<int64_t>(data.size());
    absl::StrAppend(&json, json.size() > 1 ? "," : "",
                    Entry(name, "F32", "[1]", at, at + 4));
    data += test::BytesOf<float>({value});
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');  // aligns the data
  return test::SafetensorsBytes(json, data);
}

class CheckpointFaultsTest : public ::testing::TestWithParam<ReadMode> {
 protected:
  std::string Refusal(absl::string_view bytes) {
    const auto file =
        SafetensorsFile::Open(dir_.Write("t.safetensors", bytes), GetParam());
    return file.ok() ? "" : std::string(file.status().message());
  }
  absl::StatusOr<CheckpointReader> OpenIndexed(absl::string_view map) {
    dir_.Write("model.safetensors.index.json",
               absl::StrCat("{\"weight_map\":", map, "}"));
    return CheckpointReader::Open(dir_.path(), GetParam());
  }
  std::string IndexRefusal(absl::string_view map) {
    const auto reader = OpenIndexed(map);
    return reader.ok() ? "" : std::string(reader.status().message());
  }
  absl::StatusOr<TiedWeights> Tied(const std::string& bytes, bool tied) {
    dir_.Write("model.safetensors", bytes);
    const auto reader = CheckpointReader::Open(dir_.path(), GetParam());
    if (!reader.ok()) return reader.status();
    return CheckTiedWeights(*reader, "embed", "head", tied);
  }

  test::TempDir dir_;
  std::unique_ptr<Context> context_ = test::MakeContext();
};

INSTANTIATE_TEST_SUITE_P(Modes, CheckpointFaultsTest,
                         ::testing::Values(ReadMode::kMap, ReadMode::kRead),
                         [](const auto& info) {
                           return info.param == ReadMode::kMap ? "Map" : "Read";
                         });

TEST_P(CheckpointFaultsTest, F1ShardShorterThanItsHeaderSays) {
  const std::string whole =
      File({{"a", 1}, {"b", 2}, {"c", 3}, {"d", 4}, {"e", 5}});
  ASSERT_EQ(Refusal(whole), "");
  EXPECT_THAT(Refusal(whole.substr(0, whole.size() - 16)),
              AllOf(HasSubstr("t.safetensors"),
                    HasSubstr("accounts for 20 bytes of data, got 4"),
                    HasSubstr("first tensor affected is \"b\"")));
  EXPECT_THAT(Refusal(whole.substr(0, 40)), HasSubstr("has 40 bytes in all"));
  EXPECT_THAT(Refusal(whole.substr(0, 7)), HasSubstr("7 bytes"));
}

TEST_P(CheckpointFaultsTest, F2OffsetsDisagreeWithShapes) {
  const auto refusal = [&](const std::string& entries, int bytes) {
    return Refusal(
        FileOf({entries}, std::string(static_cast<size_t>(bytes), 'x')));
  };
  const std::string a = Entry("a", "U8", "[4]", 0, 4);
  EXPECT_THAT(refusal(Entry("w", "F32", "[1000,1000]", 0, 4), 4),
              HasSubstr("\"w\""));
  EXPECT_THAT(refusal(Entry("w", "U8", "[4]", 4, 0), 4), HasSubstr("\"w\""));
  EXPECT_THAT(refusal(absl::StrCat(a, ",", Entry("b", "U8", "[4]", 0, 4)), 4),
              HasSubstr("overlap"));
  EXPECT_THAT(refusal(absl::StrCat(a, ",", Entry("b", "U8", "[4]", 8, 12)), 12),
              HasSubstr("\"b\""));
  EXPECT_THAT(refusal(a, 8), HasSubstr("4 trailing bytes"));
  EXPECT_THAT(Refusal(std::string("\0\0\0\0\0\0\0\x80{}", 10)),
              HasSubstr("header of 9223372036854775808 bytes"));
  // Legal.
  EXPECT_EQ(refusal(Entry("s", "F32", "[]", 0, 4), 4), "");
  EXPECT_EQ(refusal(Entry("z", "F32", "[3,0]", 0, 0), 0), "");
  EXPECT_EQ(Refusal(test::SafetensorsBytes(
                "{\"__metadata__\":{\"a\":\"b\"}}    ", "")),
            "");
}

TEST_P(CheckpointFaultsTest, F3IndexNamesTheWrongShard) {
  dir_.Write("s1", File({{"a", 1}, {"b", 2}}));
  dir_.Write("s2", File({{"c", 3}}));
  EXPECT_EQ(IndexRefusal(R"({"a":"s1","b":"s1","c":"s2"})"), "");
  EXPECT_THAT(IndexRefusal(R"({"a":"s1","b":"s1","c":"s1"})"),
              AllOf(HasSubstr("\"c\""), HasSubstr("s1")));
  EXPECT_THAT(IndexRefusal(R"({"a":"s1","c":"s3"})"),
              AllOf(HasSubstr("\"c\""), HasSubstr("s3, which is missing")));
  EXPECT_THAT(IndexRefusal(R"({"a":"../s1"})"),
              AllOf(HasSubstr("\"a\""), HasSubstr("../s1")));
  dir_.Write("s2", File({{"c", 3}, {"a", 1}}));
  EXPECT_THAT(
      IndexRefusal(R"({"a":"s1","b":"s1","c":"s2"})"),
      AllOf(HasSubstr("\"a\" is in both"), HasSubstr("s1"), HasSubstr("s2")));
}

TEST_P(CheckpointFaultsTest, F4StaleSecondShardSet) {
  std::string map = "{";
  for (int i = 1; i <= 4; ++i) {
    const std::string file =
        absl::StrCat("model-0000", i, "-of-00004.safetensors");
    dir_.Write(file, File({{absl::StrCat("t", i), static_cast<float>(i)}}));
    absl::StrAppend(&map, i > 1 ? "," : "", "\"t", i, "\":\"", file, "\"");
  }
  for (int i = 1; i <= 2; ++i) {
    dir_.Write(absl::StrCat("model-0000", i, "-of-00002.safetensors"),
               FileOf({Entry(absl::StrCat("t", i), "F32", "[2]", 0, 8)},
                      std::string(8, 'x')));
  }
  auto reader = OpenIndexed(map + "}");
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->num_tensors(), 4);
  EXPECT_EQ(reader->total_bytes(), 16);
  EXPECT_THAT(reader->warnings(),
              ElementsAre(HasSubstr("model-00001-of-00002.safetensors: the "
                                    "index does not name it"),
                          HasSubstr("model-00002-of-00002.safetensors")));
  EXPECT_THAT(ToDoubles(reader->Take(context_->cpu(), "t2").value()),
              ElementsAre(2));
  // Writing goes to a folder of its own or not at all.
  EXPECT_EQ(CheckpointWriter::Create(dir_.path(), {}).status().code(),
            absl::StatusCode::kAlreadyExists);
}

int64_t StatusKilobytes(absl::string_view key) {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line)) {
    if (!absl::StartsWith(line, key)) continue;
    int64_t value = 0;
    const size_t digits = line.find_first_of("0123456789");
    const size_t end = line.find(' ', digits);
    if (absl::SimpleAtoi(line.substr(digits, end - digits), &value))
      return value;
  }
  return -1;
}

int64_t NumShardMaps() {
  std::ifstream file("/proc/self/maps");
  std::string line;
  int64_t maps = 0;
  while (std::getline(file, line)) maps += absl::StrContains(line, "/shard-");
  return maps;
}

TEST_P(CheckpointFaultsTest, F5HandlesMapsAndMemoryOverManyShards) {
  constexpr int kShards = 1200;
  constexpr int64_t kElements = 8192;  // 32 KB a shard
  const std::string data(4 * kElements, '\0');
  std::string map = "{";
  for (int i = 0; i < kShards; ++i) {
    const std::string file = absl::StrCat("shard-", i);
    dir_.Write(file, FileOf({Entry(absl::StrCat("t", i), "F32", "[64,128]", 0,
                                   4 * kElements)},
                            data));
    absl::StrAppend(&map, i > 0 ? "," : "", "\"t", i, "\":\"", file, "\"");
  }
  struct rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  struct rlimit low = old;
  low.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const int64_t before = StatusKilobytes("RssAnon");
  auto reader = OpenIndexed(map + "}");
  int loaded = 0;
  for (int i = 0; i < kShards && reader.ok(); ++i) {
    const auto tensor = reader->Take(context_->cpu(), absl::StrCat("t", i));
    loaded += tensor.ok() && ToDoubles(*tensor).size() == kElements;
  }
  const int64_t grown = StatusKilobytes("RssAnon") - before;
  const int64_t maps = NumShardMaps();
  // Tensors that are held stay whole, whatever their number.
  std::vector<Tensor> held;
  for (int i = 0; i < kShards && reader.ok(); ++i) {
    auto tensor =
        reader->TakeRows(context_->cpu(), absl::StrCat("t", i), 63, 1);
    if (tensor.ok()) held.push_back(*tensor);
  }
  setrlimit(RLIMIT_NOFILE, &old);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(loaded, kShards);
  EXPECT_EQ(held.size(), static_cast<size_t>(kShards));
  EXPECT_EQ(ToDoubles(held[7]).size(), 128u);
  EXPECT_LE(maps, 64);
  EXPECT_EQ(maps > 0, GetParam() == ReadMode::kMap);
#if !defined(ESPALIER_ASAN) && !defined(ESPALIER_TSAN)
  EXPECT_LT(grown, 16 * 1024);  // the model has 38 MB
#endif
  (void)grown;
}

TEST(ReadableFileTest, AReadErrorNamesFileAndOffset) {
  // A regular file whose first page cannot be read.
  const auto file = internal::ReadableFile::Open("/proc/self/mem");
  if (!file.ok()) GTEST_SKIP() << "no /proc/self/mem";
  std::vector<uint8_t> bytes(16);
  const absl::Status status = file->ReadAt(4096, absl::MakeSpan(bytes));
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("/proc/self/mem"), HasSubstr("at byte 4096")));
}

TEST_P(CheckpointFaultsTest, F5AFileThatShrinksIsAnError) {
  const std::string whole = File({{"a", 1}});
  const std::string path = dir_.Write("t.safetensors", whole);
  const auto file = SafetensorsFile::Open(path, GetParam());
  ASSERT_TRUE(file.ok()) << file.status();
  dir_.Write("t.safetensors", whole.substr(0, whole.size() - 2));
  std::vector<uint8_t> bytes(4);
  for (const absl::Status& status :
       {file->Load(context_->cpu(), "a").status(),
        file->ReadBytes(file->entries()[0], 0, absl::MakeSpan(bytes))}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("t.safetensors"), HasSubstr("\"a\"")));
  }
}

TEST_P(CheckpointFaultsTest, F6TiedTensorsStoredOnce) {
  // (a) the embedding only, tied
  EXPECT_EQ(Tied(File({{"embed", 1}}), true).value(), TiedWeights::kShared);
  // (b) the head only, with the other name in the metadata
  const std::string alias = File(
      {{"head", 3}}, "\"__metadata__\":{\"embed\":\"head\",\"format\":\"pt\"}");
  EXPECT_EQ(Tied(alias, true).value(), TiedWeights::kShared);
  auto reader = CheckpointReader::Open(dir_.path(), GetParam());
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->num_tensors(), 1);
  EXPECT_TRUE(reader->Contains("embed"));
  EXPECT_FALSE(reader->Contains("format"));
  const Tensor embed = reader->Take(context_->cpu(), "embed").value();
  const Tensor head = reader->Take(context_->cpu(), "head").value();
  EXPECT_THAT(ToDoubles(embed), ElementsAre(3));
  EXPECT_EQ(reader->num_consumed(), 1);
  if (GetParam() == ReadMode::kMap) {
    EXPECT_EQ(embed.data<float>(), head.data<float>());
  }
  EXPECT_THAT(reader->Unused(), ElementsAre());
  // (c) not tied, no head
  const auto missing = Tied(File({{"embed", 1}}), false);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("\"head\""));
  EXPECT_THAT(std::string(Tied(File({{"x", 1}}), true).status().message()),
              HasSubstr("\"embed\""));
  // (d) tied, both stored
  const auto differ = Tied(File({{"embed", 1}, {"head", 2}}), true);
  EXPECT_THAT(std::string(differ.status().message()),
              AllOf(HasSubstr("\"embed\""), HasSubstr("\"head\""),
                    HasSubstr("tie_word_embeddings")));
  EXPECT_EQ(Tied(File({{"embed", 1}, {"head", 1}}), true).value(),
            TiedWeights::kShared);
  EXPECT_EQ(Tied(File({{"embed", 1}, {"head", 2}}), false).value(),
            TiedWeights::kSeparate);
}

TEST_P(CheckpointFaultsTest, F7NewDTypesAndSubByteShapes) {
  const std::string data =
      "\x7f\x80\xff"
      "ABCDEFGH";
  const auto file = SafetensorsFile::Open(
      dir_.Write("t.safetensors", FileOf({Entry("e", "F8_E8M0", "[3]", 0, 3),
                                          Entry("f", "F4", "[2,8]", 3, 11)},
                                         data)),
      GetParam());
  ASSERT_TRUE(file.ok()) << file.status();
  Device& cpu = context_->cpu();
  EXPECT_THAT(ToDoubles(file->Load(cpu, "e").value()),
              ElementsAre(127, 128, 255));
  const Tensor f = file->Load(cpu, "f").value();
  EXPECT_EQ(ToString(f), "u8 [2, 4] on cpu");
  EXPECT_THAT(ToDoubles(file->LoadRows(cpu, *file->Find("f"), 1, 1).value()),
              ElementsAre('E', 'F', 'G', 'H'));
  EXPECT_THAT(Refusal(FileOf({Entry("f", "F4", "[2,7]", 0, 7)}, "1234567")),
              AllOf(HasSubstr("\"f\""), HasSubstr("whole bytes")));
}

}  // namespace
}  // namespace espalier
