#include "espalier/io/object_cache.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_object_server.h"
#include "espalier/io/internal/test_util.h"

namespace espalier {
namespace {

using test::ObjectServer;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A store with the objects of one map.
class ObjectCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ = std::make_unique<ObjectServer>();
    Connect();
  }
  void Connect() {
    ObjectStoreConfig config;
    config.endpoint = server_->url();
    config.max_attempts = 1;
    config.part_bytes = part_bytes_;
    store_ = *ObjectStore::Create(config);
  }

  // An object with an ETag of its content's own.
  void Put(const std::string& key, const std::string& value) {
    server_->Put(key, value,
                 absl::StrCat("\"", value.size(), value.substr(0, 1), "\""));
  }

  std::unique_ptr<ObjectCache> Cache(int64_t max_bytes = 0) {
    auto cache = ObjectCache::Create(*store_, dir_.Path("c"), max_bytes);
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *std::move(cache);
  }
  std::string Get(ObjectCache& cache, const std::string& key) {
    const auto path = cache.Get({"bucket", key});
    return path.ok() ? *path : std::string(path.status().message());
  }

  test::TempDir dir_;
  int64_t part_bytes_ = 1 << 20;
  std::unique_ptr<ObjectServer> server_;
  std::unique_ptr<ObjectStore> store_;
};

TEST_F(ObjectCacheTest, ObjectsAndPrefixes) {
  Put("m/a.json", "{}");
  Put("m/sub/b.bin", "bytes");
  Put("m/sub/", "");
  const auto cache = Cache();
  const std::string file = Get(*cache, "m/a.json");
  EXPECT_TRUE(absl::EndsWith(file, "/a.json"));
  EXPECT_EQ(test::ReadFile(file), "{}");
  EXPECT_EQ(cache->num_fetched(), 1);
  for (const char* prefix : {"m", "m/"}) {
    const std::string folder = Get(*cache, prefix);
    EXPECT_EQ(test::ReadFile(folder + "/a.json"), "{}");
    EXPECT_EQ(test::ReadFile(folder + "/sub/b.bin"), "bytes");
  }
  EXPECT_EQ(cache->num_fetched(), 2);  // a.json was there
  // A changed object is another file; the old one stays as it is.
  Put("m/a.json", "[1]");
  const std::string changed = Get(*cache, "m/a.json");
  EXPECT_NE(changed, file);
  EXPECT_EQ(test::ReadFile(changed), "[1]");
  EXPECT_EQ(test::ReadFile(file), "{}");
  // Another process finds it all.
  const auto other = Cache();
  EXPECT_EQ(Get(*other, "m/a.json"), changed);
  EXPECT_EQ(other->num_hits(), 1);
  EXPECT_EQ(other->num_fetched(), 0);
  EXPECT_THAT(Get(*cache, "x"), HasSubstr("no object and nothing below it"));
}

TEST_F(ObjectCacheTest, TheLongestUnusedMakesRoom) {
  for (const char* key : {"a", "b", "c"}) Put(key, std::string(40, *key));
  Put("d", std::string(90, 'd'));
  const auto count = [this] {
    int n = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(dir_.Path("c/objects"))) {
      n += entry.is_regular_file();
    }
    return n;
  };
  {
    const auto cache = Cache();
    Get(*cache, "a");
    Get(*cache, "b");
    const auto old = std::filesystem::canonical(Get(*cache, "a"));
    std::filesystem::last_write_time(
        old,
        std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  }
  const auto cache = Cache(100);
  const std::string c = Get(*cache, "c");
  EXPECT_EQ(test::ReadFile(c), std::string(40, 'c'));
  EXPECT_EQ(count(), 2);
  const auto before = store_->num_requests();
  Get(*cache, "b");
  EXPECT_EQ(store_->num_requests(), before + 1);  // looked at, not fetched
  // Both are in use now.
  const std::string refused = Get(*cache, "d");
  EXPECT_THAT(refused,
              AllOf(HasSubstr("needs 170 bytes"), HasSubstr("may hold 100")));
  EXPECT_EQ(test::ReadFile(c), std::string(40, 'c'));
  EXPECT_EQ(test::ReadFile(Get(*Cache(100), "d")), std::string(90, 'd'));
  EXPECT_EQ(count(), 1);
}

TEST_F(ObjectCacheTest, KeysCannotLeaveTheFolder) {
  for (const std::string key : {"../x", "a//b", "a/./b", "a\\b"}) {
    server_ = std::make_unique<ObjectServer>();
    Connect();
    Put("m/" + key, "evil");
    const auto cache = Cache();
    EXPECT_THAT(Get(*cache, "m/"), HasSubstr("cannot be the name")) << key;
    EXPECT_EQ(cache->num_fetched(), 0);
  }
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("x")));
}

TEST_F(ObjectCacheTest, ACopyThatWasBegunIsGoneOnWith) {
  part_bytes_ = 100;  // eight at once
  Connect();
  std::string bytes;
  for (int i = 0; i < 5000; ++i) bytes.push_back(static_cast<char>('a' + i % 23));
  Put("a", bytes);
  server_->SetFault([](const ObjectServer::Request& request,
                       ObjectServer::Response* response) {
    const auto range = request.headers.find("range");
    response->hang_up = true;
    return range != request.headers.end() && range->second == "bytes=3400-3499";
  });
  EXPECT_THAT(Get(*Cache(), "a"), HasSubstr("given up after 1 attempts"));
  server_->SetFault(nullptr);
  const int64_t before = server_->ranged_bytes();
  const auto cache = Cache(5000);
  std::vector<int64_t> done;
  cache->SetProgress([&](int64_t bytes_done, int64_t total) {
    EXPECT_EQ(total, 5000);
    done.push_back(bytes_done);
  });
  const std::string path = Get(*cache, "a");
  EXPECT_TRUE(test::ReadFile(path) == bytes) << path;
  // 3200 were here; of them the last 800 may not have reached the disk.
  EXPECT_EQ(server_->ranged_bytes() - before, 5000 - 2400);
  EXPECT_THAT(done, ::testing::ElementsAre(3200, 4000, 4800, 5000));
  for (const auto& entry :
       std::filesystem::directory_iterator(dir_.Path("c/objects"))) {
    EXPECT_EQ(entry.path().extension(), "") << entry.path();
  }
}

TEST_F(ObjectCacheTest, WrongBytesAreNoCopy) {
  const std::string md5 = "\"5eb63bbbe01eeed093cb22bb8f5acdc3\"";
  server_->Put("a", "hello worlt", md5);
  EXPECT_THAT(Get(*Cache(), "a"), HasSubstr("checksum"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_.Path("c/objects")));
  server_->Put("a", "hello world", md5);
  const auto cache = Cache();
  EXPECT_EQ(test::ReadFile(Get(*cache, "a")), "hello world");
  EXPECT_THAT(cache->Account(),
              HasSubstr("1 objects copied, of which 1 agree"));
}

TEST_F(ObjectCacheTest, FailedFetchLeavesNothing) {
  Put("a", std::string(40, 'a'));
  const auto cache = Cache();
  const auto head = store_->Head("bucket", "a");
  ASSERT_TRUE(head.ok());
  server_->Stop();
  EXPECT_THAT(Get(*cache, "a"), HasSubstr("given up after 1 attempts"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_.Path("c/objects")));
  EXPECT_FALSE(ObjectCache::Create(*store_, dir_.Path("c"), -1).ok());
}

}  // namespace
}  // namespace espalier
