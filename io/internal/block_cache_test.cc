#include "espalier/io/internal/block_cache.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"

namespace espalier::internal {
namespace {

constexpr int64_t kFileBytes = 100'003;

uint8_t ByteAt(uint32_t file, int64_t offset) {
  return static_cast<uint8_t>(offset * 131 % 251 + file);
}

// Bytes of files below `dir` that have no name any more.
int64_t UnnamedBytes(const std::string& dir) {
  int64_t bytes = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target =
        std::filesystem::read_symlink(entry.path(), error).string();
    struct stat status = {};
    if (target.rfind(dir, 0) == 0 && stat(entry.path().c_str(), &status) == 0) {
      bytes += status.st_size;
    }
  }
  return bytes;
}

class BlockCacheTest : public ::testing::Test {
 protected:
  void Create(int64_t max_bytes, int64_t ahead_bytes) {
    auto cache = BlockCache::Create(
        {dir_.path(), max_bytes, 1000, ahead_bytes},
        [this](uint32_t file, int64_t offset, absl::Span<uint8_t> bytes,
               bool ahead) {
          ++(ahead ? num_ahead_ : num_fetches_);
          EXPECT_LE(offset + static_cast<int64_t>(bytes.size()), kFileBytes);
          if (failures_ > 0) {
            --failures_;
            return absl::UnavailableError("no answer");
          }
          for (size_t i = 0; i < bytes.size(); ++i) {
            bytes[i] = ByteAt(file, offset + static_cast<int64_t>(i));
          }
          return absl::OkStatus();
        });
    ASSERT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
  }
  // Whether the bytes came, and are the file's.
  absl::Status Read(uint32_t file, int64_t offset, int64_t count) {
    std::vector<uint8_t> bytes(static_cast<size_t>(count), 0xee);
    absl::Status status =
        cache_->Read(file, kFileBytes, offset, absl::MakeSpan(bytes));
    if (!status.ok()) return status;
    for (int64_t i = 0; i < count; ++i) {
      if (bytes[static_cast<size_t>(i)] != ByteAt(file, offset + i)) {
        return absl::DataLossError(absl::StrCat("byte ", offset + i));
      }
    }
    return absl::OkStatus();
  }

  test::TempDir dir_;
  std::atomic<int> num_fetches_ = 0;
  std::atomic<int> num_ahead_ = 0;
  std::atomic<int> failures_ = 0;
  std::unique_ptr<BlockCache> cache_;
};

TEST_F(BlockCacheTest, FetchesWhatIsReadOnce) {
  Create(1'000'000, 0);
  EXPECT_EQ(Read(0, 1500, 10), absl::OkStatus());
  EXPECT_EQ(cache_->fetched_bytes(), 1000);
  EXPECT_EQ(Read(0, 1000, 1000), absl::OkStatus());
  EXPECT_EQ(num_fetches_, 1);
  EXPECT_EQ(Read(0, 0, kFileBytes), absl::OkStatus());
  EXPECT_EQ(num_fetches_, 3);  // in front of the block and behind it
  EXPECT_EQ(cache_->fetched_bytes(), kFileBytes);
  EXPECT_EQ(Read(1, kFileBytes - 3, 3), absl::OkStatus());
  EXPECT_EQ(Read(0, kFileBytes, 0), absl::OkStatus());
  EXPECT_EQ(cache_->fetched_bytes(), kFileBytes + 3);
}

TEST_F(BlockCacheTest, TheLocalFileIsBoundedAndHasNoName) {
  Create(20'000, 8'000);
  for (int64_t i = 0; i < 2000; ++i) {
    ASSERT_EQ(Read(static_cast<uint32_t>(i % 3), i * 7919 % 95'000, 4'321),
              absl::OkStatus());
  }
  EXPECT_EQ(Read(0, 0, kFileBytes), absl::OkStatus());  // longer than it all
  EXPECT_GT(cache_->fetched_bytes(), 200'000);
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
  EXPECT_GT(UnnamedBytes(dir_.path()), 10'000);
  EXPECT_LE(UnnamedBytes(dir_.path()), 20'000);
}

TEST_F(BlockCacheTest, FetchesAheadOfWhoReadsOn) {
  Create(1'000'000, 20'000);
  EXPECT_EQ(Read(0, 50'000, 10), absl::OkStatus());
  EXPECT_EQ(Read(0, 3'000, 10), absl::OkStatus());
  EXPECT_EQ(cache_->fetched_bytes(), 2'000);  // nothing ahead of jumps
  for (int64_t at = 0; at < kFileBytes; at += 500) {
    ASSERT_EQ(Read(1, at, std::min<int64_t>(500, kFileBytes - at)),
              absl::OkStatus());
  }
  // Two blocks until it is seen; then all by the other thread, in pieces that
  // grow to half the window.
  EXPECT_LE(num_fetches_, 2 + 2);
  EXPECT_GE(num_ahead_, 1);
  EXPECT_LE(num_ahead_, 25);
  EXPECT_GE(cache_->ahead_bytes(), 95'000);
  EXPECT_EQ(cache_->fetched_bytes(), 2'000 + kFileBytes);  // nothing twice
}

TEST_F(BlockCacheTest, AFailureIsToldAndTriedAgain) {
  Create(1'000'000, 20'000);
  failures_ = 1;
  EXPECT_EQ(Read(0, 0, 10).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Read(0, 0, 10), absl::OkStatus());
  // Of what is fetched ahead nobody is told; who comes there fetches it.
  for (int64_t at = 10; at < kFileBytes; at += 999) {
    if (at == 5005) failures_ = 1;
    const int64_t count = std::min<int64_t>(999, kFileBytes - at);
    if (const absl::Status status = Read(0, at, count); !status.ok()) {
      ASSERT_EQ(Read(0, at, count), absl::OkStatus());
    }
  }
}

TEST_F(BlockCacheTest, ManyThreadsReadAtOnce) {
  Create(30'000, 8'000);
  std::vector<std::thread> threads;
  threads.reserve(4);
  std::atomic<int> wrong = 0;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, t, &wrong] {
      for (int64_t i = 0; i < 500; ++i) {
        const int64_t at = t % 2 == 0 ? i * 180 : (i * 7919 + t * 100) % 97'000;
        if (!Read(static_cast<uint32_t>(t % 3), at, 777).ok()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace espalier::internal
