// Against a real S3 server process (tests/oracle/s3_server.py). Runs where
// ESPALIER_ORACLE_PYTHON names a Python with moto[server] and boto3.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/http_client.h"
#include "espalier/io/internal/test_util.h"
#include "espalier/io/json_object.h"
#include "espalier/io/object_cache.h"
#include "espalier/io/object_folder.h"
#include "espalier/io/object_store.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class S3ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no thread changes the environment
    const char* python = std::getenv("ESPALIER_ORACLE_PYTHON");
    if (python == nullptr) {
      GTEST_SKIP() << "ESPALIER_ORACLE_PYTHON is not set: no S3 server";
    }
    int in[2], out[2];
    ASSERT_EQ(pipe(in), 0);
    ASSERT_EQ(pipe(out), 0);
    child_ = fork();
    if (child_ == 0) {
      dup2(in[0], 0);
      dup2(out[1], 1);
      for (const int end : {in[0], in[1], out[0], out[1]}) close(end);
      const std::string script =
          absl::StrCat(ESPALIER_SOURCE_DIR, "/tests/oracle/s3_server.py");
      execl(python, python, script.c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    keep_alive_ = in[1];
    std::string line;
    char c = 0;
    while (read(out[0], &c, 1) == 1 && c != '\n') line.push_back(c);
    close(out[0]);
    auto json = JsonObject::Parse(line, "s3_server.py");
    ASSERT_TRUE(json.ok()) << json.status();
    ASSERT_TRUE(json->Get("endpoint", &config_.endpoint).ok());
    ASSERT_TRUE(json->Get("access_key", &config_.access_key).ok());
    ASSERT_TRUE(json->Get("secret_key", &config_.secret_key).ok());
    config_.part_bytes = 100'000;
    config_.first_backoff_ms = 20;
  }

  void TearDown() override {
    if (child_ <= 0) return;
    close(keep_alive_);
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

  void Fault(const std::string& mode, int count) {
    internal::HttpClient client{internal::HttpSettings()};
    std::vector<internal::HttpRequest> request(1);
    request[0].url =
        absl::StrCat(config_.endpoint, "/__fault/", mode, "/", count);
    ASSERT_EQ(client.Run(request), absl::OkStatus());
  }
  std::unique_ptr<ObjectStore> Store() { return *ObjectStore::Create(config_); }
  absl::Status Fetch(ObjectStore& store, const std::string& key) {
    const auto object = store.Head("bucket", key);
    if (!object.ok()) return object.status();
    std::filesystem::remove(dir_.Path("f"));
    return store.Fetch("bucket", *object, dir_.Path("f"));
  }

  test::TempDir dir_;
  ObjectStoreConfig config_;
  pid_t child_ = 0;
  int keep_alive_ = -1;
};

TEST_F(S3ServerTest, ReadsListsAndRefuses) {
  const auto store = Store();
  // Contents are compared with the server's SHA-256 by Fetch.
  EXPECT_EQ(Fetch(*store, "data/train file.jsonl"), absl::OkStatus());
  EXPECT_EQ(std::filesystem::file_size(dir_.Path("f")), 3000001u);
  EXPECT_EQ(Fetch(*store, "data/sub/b+c=d.bin"), absl::OkStatus());
  EXPECT_EQ(Fetch(*store, "data/empty"), absl::OkStatus());
  const auto many = store->List("bucket", "many/");
  ASSERT_TRUE(many.ok()) << many.status();
  ASSERT_EQ(many->size(), 1100u);
  EXPECT_EQ((*many)[1099].key, "many/01099");
  EXPECT_EQ(store->List("bucket", "data/sub/b+c=")->size(), 1u);
  EXPECT_EQ(Fetch(*store, "data/none").code(), absl::StatusCode::kNotFound);
  const auto odd = store->List("bucket", "odd/ a+b%");
  ASSERT_TRUE(odd.ok() && odd->size() == 1) << odd.status();
  EXPECT_EQ((*odd)[0].key, "odd/ a+b%c&d\xC3\xA9\x01=.txt");
  EXPECT_EQ(store->Read("bucket", (*odd)[0], 1, 2).value(), "dd");
  EXPECT_EQ(store->num_retries(), 0);

  ObjectStoreConfig wrong = config_;
  wrong.secret_key += "x";
  const auto refused = (*ObjectStore::Create(wrong))->List("bucket", "data/");
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kPermissionDenied)
      << refused.status();
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("SignatureDoesNotMatch"));
  EXPECT_THAT(std::string((*ObjectStore::Create(wrong))
                              ->Head("bucket", "data/empty")
                              .status()
                              .message()),
              HasSubstr("SignatureDoesNotMatch"));
  wrong.access_key = wrong.secret_key = "";
  EXPECT_FALSE((*ObjectStore::Create(wrong))->List("bucket", "data/").ok());
}

TEST_F(S3ServerTest, FaultsPassOrAreNamed) {
  const auto store = Store();
  Fault("throttle", 25);
  EXPECT_EQ(Fetch(*store, "data/train file.jsonl"), absl::OkStatus());
  EXPECT_EQ(store->num_retries(), 25);
  Fault("truncate", 20);
  EXPECT_EQ(Fetch(*store, "data/train file.jsonl"), absl::OkStatus());
  EXPECT_EQ(store->num_retries(), 45);
  Fault("throttle", 1000000);
  config_.max_attempts = 2;
  const absl::Status status = Fetch(*Store(), "data/train file.jsonl");
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("SlowDown"), HasSubstr("after 2 attempts")));
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("f")));
  Fault("throttle", 0);

  const auto cache = *ObjectCache::Create(*store, dir_.Path("cache"), 0);
  const auto folder = cache->Get({"bucket", "data"});
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(std::filesystem::file_size(*folder + "/sub/b+c=d.bin"), 70000u);

  kill(child_, SIGKILL);
  EXPECT_EQ(Fetch(*Store(), "data/empty").code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(cache->Get({"bucket", "data"}).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(S3ServerTest, FoldersAreReadByRanges) {
  ObjectFolderOptions options;
  options.cache_dir = dir_.Path("blocks");
  options.cache_bytes = 1'000'000;
  options.block_bytes = 40'000;
  options.ahead_bytes = 400'000;
  const auto open = [&](const ObjectStoreConfig& config) {
    return OpenObjectFolder(config, {"bucket", "data"}, options);
  };
  const auto store = Store();
  ASSERT_EQ(Fetch(*store, "data/train file.jsonl"), absl::OkStatus());
  const std::string expected = test::ReadFile(dir_.Path("f"));
  const auto folder = open(config_);
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto file = (*folder)->Open("train file.jsonl");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto read_all = [&] {
    std::string got(expected.size(), '\0');
    absl::Status status;
    constexpr size_t kPiece = 39'999;
    for (size_t at = 0; at < got.size() && status.ok(); at += kPiece) {
      status = file->ReadAt(
          static_cast<int64_t>(at),
          absl::MakeSpan(reinterpret_cast<uint8_t*>(got.data()) + at,
                         std::min(kPiece, got.size() - at)));
    }
    if (status.ok() && got != expected) return absl::DataLossError("bytes");
    return status;
  };
  EXPECT_EQ(read_all(), absl::OkStatus());
  EXPECT_THAT((*folder)->Account(), HasSubstr("1 agree with the store's"));
  Fault("throttle", 4);
  EXPECT_EQ(read_all(), absl::OkStatus());
  Fault("truncate", 4);
  EXPECT_EQ(read_all(), absl::OkStatus());
  ObjectStoreConfig wrong = config_;
  wrong.secret_key += "x";
  EXPECT_EQ(open(wrong).status().code(), absl::StatusCode::kPermissionDenied);
  kill(child_, SIGKILL);
  config_.max_attempts = 2;
  EXPECT_EQ(read_all().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(open(config_).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(S3ServerTest, RangesAreComparedWithEveryChecksum) {
  ObjectFolderOptions options;
  options.cache_dir = dir_.Path("blocks");
  const auto read = [&](int flips) {
    const auto folder = OpenObjectFolder(config_, {"bucket", "sums"}, options);
    EXPECT_TRUE(folder.ok()) << folder.status();
    absl::Status status;
    for (const char* name : {"CRC32", "SHA1", "parts"}) {
      Fault("flip", flips);
      const auto bytes = (*folder)->ReadWhole(name, 100 << 20);
      if (flips > 0) {
        EXPECT_EQ(bytes.status().code(), absl::StatusCode::kDataLoss) << name;
      } else {
        EXPECT_TRUE(bytes.ok()) << bytes.status();
      }
    }
    return (*folder)->Account();
  };
  EXPECT_THAT(read(1), HasSubstr(" 0 agree with the store's checksum"));
  const std::string right = read(0);
  EXPECT_THAT(right, AllOf(HasSubstr(" 0 found in the cache"),
                           HasSubstr(" 3 agree with the store's checksum")));
  EXPECT_THAT(read(0), HasSubstr(": 0 bytes fetched, "));
}

}  // namespace
}  // namespace espalier
