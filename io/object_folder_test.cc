// A checkpoint, a data file and a token folder read from a store by ranges.

#include "espalier/io/object_folder.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/convert.h"
#include "espalier/io/data_set.h"
#include "espalier/io/inspect.h"
#include "espalier/io/internal/digest.h"
#include "espalier/io/internal/test_object_server.h"
#include "espalier/io/internal/test_util.h"
#include "espalier/io/safetensors_writer.h"
#include "espalier/io/shard.h"
#include "espalier/io/verify.h"

namespace espalier {
namespace {

using test::HttpServer;
using test::ObjectServer;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kDataBytes = 3'000'000;  // of each of two weight files

// A store whose bucket holds the files below a folder.
class ObjectFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.endpoint = server_.url();
    config_.first_backoff_ms = 1;
    config_.part_bytes = 100'000;
    config_.max_attempts = 3;
    options_.cache_dir = dir_.Path("cache");
    options_.cache_bytes = 1'000'000;
    options_.block_bytes = 16'384;
    options_.ahead_bytes = 200'000;
    std::filesystem::create_directories(bucket_ + "/m/sub");
  }

  absl::StatusOr<std::shared_ptr<const Folder>> Open(const std::string& key) {
    return OpenObjectFolder(config_, {"bucket", key}, options_);
  }

  // Two shards of half a million bf16 each, an index and small files.
  void WriteCheckpoint() {
    std::string map;
    for (int s = 1; s <= 2; ++s) {
      const std::string name = absl::StrCat("s", s, ".safetensors");
      const std::string tensor = absl::StrCat("layer", s, ".weight");
      auto writer = SafetensorsWriter::Create(
          Path(name),
          {{tensor, SafetensorsDType::kBF16, {1500, kDataBytes / 3000}}});
      ASSERT_TRUE(writer.ok());
      std::vector<uint8_t> data(static_cast<size_t>(kDataBytes));
      for (size_t i = 0; i < data.size(); ++i) {
        data[i] = static_cast<uint8_t>(i % 2 == 0 ? i / 2 * s % 251 : 0x3c);
      }
      ASSERT_TRUE(writer->Append(tensor, data).ok());
      ASSERT_TRUE(writer->Finish().ok());
      absl::StrAppend(&map, s > 1 ? "," : "", "\"", tensor, "\":\"", name,
                      "\"");
    }
    dir_.Write("bucket/m/model.safetensors.index.json",
               absl::StrCat("{\"weight_map\":{", map, "}}"));
    dir_.Write("bucket/m/config.json", "{\"model_type\":\"none\"}");
    dir_.Write("bucket/m/sub/notes.txt", "text");
    server_.PutFolder(bucket_);
  }
  std::string Path(const std::string& name) const {
    return bucket_ + "/m/" + name;
  }
  // By ranged reads since `since`.
  int64_t sent(int64_t since = 0) { return server_.ranged_bytes() - since; }

  test::TempDir dir_;
  const std::string bucket_ = dir_.Path("bucket");
  ObjectServer server_;
  ObjectStoreConfig config_;
  ObjectFolderOptions options_;
};

TEST_F(ObjectFolderTest, ListsAndReadsByName) {
  WriteCheckpoint();
  const auto folder = Open("m");
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ((*folder)->path(), "s3://bucket/m");
  EXPECT_THAT((*folder)->List(true).value(),
              ElementsAre("config.json", "model.safetensors.index.json",
                          "s1.safetensors", "s2.safetensors", "sub/notes.txt"));
  EXPECT_EQ((*folder)->List(false)->size(), 4u);
  EXPECT_EQ((*folder)->ReadWhole("sub/notes.txt", 10).value(), "text");
  EXPECT_EQ((*folder)->Open("none").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Open("other/").status().code(), absl::StatusCode::kNotFound);
  const auto one = Open("m/config.json");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ((*one)->path(), "s3://bucket/m");
  EXPECT_THAT((*one)->List(true).value(), ElementsAre("config.json"));
  const auto file = (*one)->Open("config.json");
  std::vector<uint8_t> bytes(30);
  EXPECT_THAT(std::string(file->ReadAt(0, absl::MakeSpan(bytes)).message()),
              HasSubstr("s3://bucket/m/config.json: ends at byte 21"));
}

TEST_F(ObjectFolderTest, InspectAndVerifyReadHeadersOnly) {
  WriteCheckpoint();
  const auto folder = Open("m/");
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto report = InspectCheckpoint(*folder);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->num_tensors, 2);
  EXPECT_EQ(report->total_bytes, 2 * kDataBytes);
  EXPECT_EQ(report->dir, "s3://bucket/m");
  const auto verified = VerifyCheckpoint(*folder, {});
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_TRUE(verified->ok()) << ToText(*verified);
  // A block of each file.
  EXPECT_LT(sent(), 5 * options_.block_bytes);
  VerifyOptions full;
  full.write_manifest = dir_.Path("manifest.json");
  ASSERT_TRUE(VerifyCheckpoint(*folder, full).ok());
  EXPECT_GT(sent(), 2 * kDataBytes);
  VerifyOptions local;
  local.full = true;
  local.manifest = full.write_manifest;
  const auto same = VerifyCheckpoint(bucket_ + "/m", local);
  EXPECT_TRUE(same.ok() && same->ok()) << ToText(*same);
}

TEST_F(ObjectFolderTest, ConvertsToTheSameBytesThroughASmallCache) {
  WriteCheckpoint();
  ConvertOptions options;
  options.to = ConvertTarget::kF32;
  ASSERT_TRUE(
      ConvertCheckpoint(bucket_ + "/m", dir_.Path("local"), options).ok());
  const auto folder = Open("m");
  ASSERT_TRUE(folder.ok()) << folder.status();
  server_.SetFault([failures = 2](const HttpServer::Request& request,
                                  HttpServer::Response* response) mutable {
    if (failures == 0 || request.headers.count("range") == 0) return false;
    --failures;  // tried again
    response->hang_up = true;
    return true;
  });
  const auto report = ConvertCheckpoint(*folder, dir_.Path("remote"), options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(test::ReadFile(dir_.Path("local/model.safetensors")) ==
              test::ReadFile(dir_.Path("remote/model.safetensors")));
  EXPECT_EQ(report->num_cast, 2);
  // Nothing twice, but for blocks that two tensors share.
  EXPECT_LT(sent(), 2 * kDataBytes + 8 * options_.block_bytes);
  server_.SetETag("\"v2\"");
  EXPECT_EQ(
      ConvertCheckpoint(*folder, dir_.Path("changed"), options).status().code(),
      absl::StatusCode::kAborted);
  server_.Stop();
  const auto gone = ConvertCheckpoint(*folder, dir_.Path("gone"), options);
  EXPECT_EQ(gone.status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ObjectFolderTest, ShardsToTheSameBytes) {
  std::filesystem::copy(ESPALIER_SOURCE_DIR "/tests/fixtures/llama",
                        bucket_ + "/m",
                        std::filesystem::copy_options::recursive |
                            std::filesystem::copy_options::overwrite_existing);
  server_.PutFolder(bucket_);
  ShardOptions options;
  options.mesh = {1, 1, 2, 1};
  const auto local =
      ShardCheckpoint(bucket_ + "/m", dir_.Path("local"), options);
  ASSERT_TRUE(local.ok()) << local.status();
  const auto folder = Open("m");
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto remote = ShardCheckpoint(*folder, dir_.Path("remote"), options);
  ASSERT_TRUE(remote.ok()) << remote.status();
  int num_files = 0;
  for (const auto& item :
       std::filesystem::recursive_directory_iterator(dir_.Path("local"))) {
    if (!item.is_regular_file()) continue;
    ++num_files;
    const std::string name =
        item.path().lexically_relative(dir_.Path("local")).string();
    EXPECT_TRUE(test::ReadFile(item.path().string()) ==
                test::ReadFile(dir_.Path("remote/" + name)))
        << name;
  }
  EXPECT_GT(num_files, 4);
}

TEST_F(ObjectFolderTest, AWrongBitOfOneRangeIsFound) {
  std::string bytes(1'000'000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(i * i % 251);
  }
  const auto etag_of = [](const std::string& text) {
    return absl::StrCat("\"",
                        absl::BytesToHexString(internal::DigestOf(
                            ObjectChecksum::Kind::kMd5, text)),
                        "\"");
  };
  server_.Put("m/a.bin", bytes, etag_of(bytes));
  server_.Put("m/b.bin", bytes);  // an ETag that is no MD5
  server_.SetEdit([flips = 2](const HttpServer::Request& request,
                              HttpServer::Response* response) mutable {
    const auto range = request.headers.find("range");
    if (flips == 0 || range == request.headers.end() ||
        !absl::StartsWith(range->second, "bytes=6")) {
      return;
    }
    --flips;
    response->body[77] = static_cast<char>(response->body[77] ^ 16);
  });
  options_.cache_bytes = 4'000'000;
  const auto whole = [](const Folder& folder, const std::string& name) {
    return folder.ReadWhole(name, 2'000'000);
  };
  auto folder = Open("m");
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto wrong = whole(**folder, "a.bin");
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(wrong.status().message()),
              AllOf(HasSubstr("s3://bucket/m/a.bin"), HasSubstr("try again")));
  // Nobody can tell of the other.
  EXPECT_NE(whole(**folder, "b.bin").value(), bytes);
  EXPECT_THAT((*folder)->Account(),
              AllOf(HasSubstr("0 agree with the store's checksum, 1 were read "
                              "in part"),
                    HasSubstr("of 1 the store has none")));
  // The next run reads the first again and not the second.
  const int64_t before = sent();
  folder = Open("m");
  EXPECT_EQ(whole(**folder, "a.bin").value(), bytes);
  EXPECT_EQ(sent(before), 1'000'000);
  EXPECT_NE(whole(**folder, "b.bin").value(), bytes);
  EXPECT_EQ(sent(before), 1'000'000);
  EXPECT_EQ((*folder)->Account(),
            "s3://bucket/m: 1000000 bytes fetched, 1000000 found in the cache; "
            "of the objects read 1 agree with the store's checksum, 0 were "
            "read in part and not compared, of 1 the store has none");
}

TEST_F(ObjectFolderTest, TheNextRunAsksForNothingButTheNames) {
  WriteCheckpoint();
  options_.cache_bytes = 10'000'000;
  VerifyOptions full;
  full.write_manifest = dir_.Path("manifest.json");
  ASSERT_TRUE(VerifyCheckpoint(*Open("m"), full).ok());
  const int64_t before = sent();
  const size_t num_requests = server_.requests().size();
  const auto again = VerifyCheckpoint(*Open("m"), full);
  ASSERT_TRUE(again.ok() && again->ok());
  EXPECT_EQ(sent(before), 0);
  // HEAD of "m", the listing, and a checksum of each of five objects.
  EXPECT_LE(server_.requests().size() - num_requests, 7u);
}

// One token a character, of "a" to "e", with <s> and </s>.
constexpr char kTokenizer[] =
    R"({"version":"1.0","added_tokens":[],"normalizer":null,)"
    R"("pre_tokenizer":null,"post_processor":null,"decoder":null,)"
    R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2},"merges":[]}})";

TEST_F(ObjectFolderTest, TrainsBeforeATokenFolderIsHere) {
  dir_.Write("tokenizer.json", kTokenizer);
  dir_.Write("tokenizer_config.json", "{}");
  std::string lines;
  for (int i = 0; i < 400; ++i) {
    absl::StrAppend(&lines, "{\"text\":\"", std::string(2000 + i, "abc"[i % 3]),
                    "\"}\n");
  }
  dir_.Write("bucket/m/data.jsonl", lines);
  DataSetConfig config;
  config.paths = {Path("data.jsonl")};
  const auto local = OpenDataSet(dir_.path(), config);
  ASSERT_TRUE(local.ok()) << local.status();
  ASSERT_TRUE(PackDataSet(*local, bucket_ + "/m/packed", false).ok());
  server_.PutFolder(bucket_);
  const SampleSource& expected = *local->groups[0].sources[0];

  // A data file is read once to find its records.
  config.paths = {"s3://bucket/m/data.jsonl"};
  config.folders[config.paths[0]] = Open("m/data.jsonl").value();
  const auto records = OpenDataSet(dir_.path(), config);
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_THAT(records->groups[0].sources[0]->Describe(),
              HasSubstr("s3://bucket/m/data.jsonl: 400 records"));
  EXPECT_EQ(records->groups[0].sources[0]->Get(399)->ids,
            expected.Get(399)->ids);

  // Of a token folder, what the sample needs.
  const int64_t before = sent();
  config.paths = {"s3://bucket/m/packed"};
  config.folders[config.paths[0]] = Open("m/packed").value();
  const auto packed = OpenDataSet(dir_.path(), config);
  ASSERT_TRUE(packed.ok()) << packed.status();
  const SampleSource& source = *packed->groups[0].sources[0];
  ASSERT_EQ(source.size(), 400);
  EXPECT_EQ(source.Get(7)->ids, expected.Get(7)->ids);
  const auto total = static_cast<int64_t>(
      std::filesystem::file_size(Path("packed/tokens-00001.safetensors")));
  EXPECT_GT(total, 4'000'000);
  EXPECT_LT(sent(before), total / 10);
  for (const int64_t i : {399, 0, 200}) {
    EXPECT_EQ(source.Get(i)->ids, expected.Get(i)->ids);
    EXPECT_EQ(source.Get(i)->weights, expected.Get(i)->weights);
  }
  // A folder of other things is no data.
  config.paths = {"s3://bucket/m"};
  config.folders[config.paths[0]] = Open("m").value();
  EXPECT_THAT(std::string(OpenDataSet(dir_.path(), config).status().message()),
              HasSubstr("s3://bucket/m: is a folder without tokens.json"));
}

}  // namespace
}  // namespace espalier
