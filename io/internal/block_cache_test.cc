#include "espalier/io/internal/block_cache.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
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

int64_t BytesBelow(const std::string& dir) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    if (entry.is_regular_file()) {
      bytes += static_cast<int64_t>(entry.file_size());
    }
  }
  return bytes;
}

// Files of kFileBytes each.
class FakeOrigin final : public BlockOrigin {
 public:
  std::string Identity(uint32_t file) const override {
    return absl::StrCat("file ", file, version);
  }
  int64_t Bytes(uint32_t) const override { return kFileBytes; }
  std::string Name(uint32_t file) const override {
    return absl::StrCat("s3://b/", file);
  }
  absl::Status Fetch(uint32_t file, int64_t offset, absl::Span<uint8_t> bytes,
                     bool ahead) override {
    ++(ahead ? num_ahead : num_fetches);
    EXPECT_LE(offset + static_cast<int64_t>(bytes.size()), kFileBytes);
    if (failures > 0) {
      --failures;
      return absl::UnavailableError("no answer");
    }
    for (size_t i = 0; i < bytes.size(); ++i) {
      const int64_t at = offset + static_cast<int64_t>(i);
      bytes[i] = ByteAt(file, at);
      if (at == flip) bytes[i] ^= 1;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<ObjectChecksum> Checksum(uint32_t file, bool) override {
    ++num_checksums;
    if (kind == ObjectChecksum::Kind::kNone) return ObjectChecksum();
    std::string bytes;
    for (int64_t at = 0; at < kFileBytes; ++at) {
      bytes.push_back(static_cast<char>(ByteAt(file, at)));
    }
    return ObjectChecksum{kind, DigestOf(kind, bytes), 0};
  }

  std::string version;
  ObjectChecksum::Kind kind = ObjectChecksum::Kind::kNone;
  std::atomic<int64_t> flip = -1;  // offset of a wrong bit
  std::atomic<int> num_fetches = 0;
  std::atomic<int> num_ahead = 0;
  std::atomic<int> num_checksums = 0;
  std::atomic<int> failures = 0;
};

class BlockCacheTest : public ::testing::Test {
 protected:
  void Create(int64_t max_bytes, int64_t ahead_bytes) {
    cache_.reset();
    auto cache = BlockCache::Create({dir_.path(), max_bytes, 1000, ahead_bytes},
                                    origin_);
    ASSERT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
  }
  // Whether the bytes came, and are the file's.
  absl::Status Read(uint32_t file, int64_t offset, int64_t count) {
    std::vector<uint8_t> bytes(static_cast<size_t>(count), 0xee);
    absl::Status status = cache_->Read(file, offset, absl::MakeSpan(bytes));
    if (!status.ok()) return status;
    for (int64_t i = 0; i < count; ++i) {
      if (bytes[static_cast<size_t>(i)] != ByteAt(file, offset + i)) {
        return absl::InternalError(absl::StrCat("byte ", offset + i));
      }
    }
    return absl::OkStatus();
  }
  absl::Status ReadOn(uint32_t file, int64_t step) {
    for (int64_t at = 0; at < kFileBytes; at += step) {
      absl::Status status = Read(file, at, std::min(step, kFileBytes - at));
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  // All block files.
  std::vector<std::string> Blocks() const {
    std::vector<std::string> paths;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(dir_.path())) {
      if (entry.is_regular_file()) paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  test::TempDir dir_;
  FakeOrigin origin_;
  std::unique_ptr<BlockCache> cache_;
};

TEST_F(BlockCacheTest, FetchesWhatIsReadOnce) {
  Create(1'000'000, 0);
  EXPECT_EQ(Read(0, 1500, 10), absl::OkStatus());
  EXPECT_EQ(cache_->counts().fetched_bytes, 1000);
  EXPECT_EQ(Read(0, 1000, 1000), absl::OkStatus());
  EXPECT_EQ(origin_.num_fetches, 1);
  EXPECT_EQ(Read(0, 0, kFileBytes), absl::OkStatus());
  EXPECT_EQ(origin_.num_fetches, 3);  // in front of the block and behind it
  EXPECT_EQ(cache_->counts().fetched_bytes, kFileBytes);
  EXPECT_EQ(Read(1, kFileBytes - 3, 3), absl::OkStatus());
  EXPECT_EQ(Read(0, kFileBytes, 0), absl::OkStatus());
  EXPECT_EQ(cache_->counts().fetched_bytes, kFileBytes + 3);
}

TEST_F(BlockCacheTest, TheFolderIsBounded) {
  Create(20'000, 8'000);
  for (int64_t i = 0; i < 500; ++i) {
    ASSERT_EQ(Read(static_cast<uint32_t>(i % 3), i * 7919 % 95'000, 4'321),
              absl::OkStatus());
    ASSERT_LE(BytesBelow(dir_.path()), 20'000);
  }
  EXPECT_EQ(Read(0, 0, kFileBytes), absl::OkStatus());  // longer than it all
  EXPECT_GT(cache_->counts().fetched_bytes, 100'000);
  EXPECT_GT(BytesBelow(dir_.path()), 10'000);
  EXPECT_LE(BytesBelow(dir_.path()), 20'000);
}

TEST_F(BlockCacheTest, FetchesAheadOfWhoReadsOn) {
  Create(1'000'000, 20'000);
  EXPECT_EQ(Read(0, 50'000, 10), absl::OkStatus());
  EXPECT_EQ(Read(0, 3'000, 10), absl::OkStatus());
  EXPECT_EQ(cache_->counts().fetched_bytes, 2'000);  // nothing ahead of jumps
  for (int64_t at = 0; at < kFileBytes; at += 500) {
    ASSERT_EQ(Read(1, at, std::min<int64_t>(500, kFileBytes - at)),
              absl::OkStatus());
  }
  // Two blocks until it is seen; then all by the other thread, in pieces that
  // grow to half the window.
  EXPECT_LE(origin_.num_fetches, 2 + 2);
  EXPECT_GE(origin_.num_ahead, 1);
  EXPECT_LE(origin_.num_ahead, 25);
  EXPECT_GE(cache_->counts().ahead_bytes, 95'000);
  EXPECT_EQ(cache_->counts().fetched_bytes,
            2'000 + kFileBytes);  // nothing twice
}

TEST_F(BlockCacheTest, AFailureIsToldAndTriedAgain) {
  Create(1'000'000, 20'000);
  origin_.failures = 1;
  EXPECT_EQ(Read(0, 0, 10).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Read(0, 0, 10), absl::OkStatus());
  // Of what is fetched ahead nobody is told; who comes there fetches it.
  for (int64_t at = 10; at < kFileBytes; at += 999) {
    if (at == 5005) origin_.failures = 1;
    const int64_t count = std::min<int64_t>(999, kFileBytes - at);
    if (const absl::Status status = Read(0, at, count); !status.ok()) {
      ASSERT_EQ(Read(0, at, count), absl::OkStatus());
    }
  }
}

TEST_F(BlockCacheTest, ALaterProcessFindsTheBlocks) {
  Create(1'000'000, 20'000);
  ASSERT_EQ(ReadOn(0, 700), absl::OkStatus());
  ASSERT_EQ(Read(1, 5'000, 1'000), absl::OkStatus());
  const int before = origin_.num_fetches + origin_.num_ahead;
  Create(1'000'000, 20'000);
  EXPECT_EQ(ReadOn(0, 700), absl::OkStatus());
  EXPECT_EQ(origin_.num_fetches + origin_.num_ahead, before);
  EXPECT_EQ(cache_->counts().fetched_bytes, 0);
  EXPECT_EQ(cache_->counts().reused_bytes, kFileBytes);
  // What is not there is fetched, and not more.
  EXPECT_EQ(Read(1, 4'000, 3'000), absl::OkStatus());
  EXPECT_EQ(cache_->counts().fetched_bytes, 2'000);
  EXPECT_EQ(cache_->counts().reused_bytes, kFileBytes + 1'000);
  // A changed file is another.
  origin_.version = " v2";
  Create(1'000'000, 0);
  EXPECT_EQ(Read(1, 4'000, 3'000), absl::OkStatus());
  EXPECT_EQ(cache_->counts().fetched_bytes, 3'000);
}

TEST_F(BlockCacheTest, DamagedBlocksAreFetchedAgain) {
  Create(1'000'000, 0);
  ASSERT_EQ(Read(0, 0, 6'000), absl::OkStatus());
  const std::vector<std::string> blocks = Blocks();
  ASSERT_EQ(blocks.size(), 6u);
  const auto change = [&](size_t i,
                          const std::function<void(std::string&)>& f) {
    std::string bytes = test::ReadFile(blocks[i]);
    f(bytes);
    std::ofstream(blocks[i], std::ios::binary) << bytes;
  };
  change(0, [](std::string& b) { b[500] = static_cast<char>(b[500] ^ 8); });
  change(1, [](std::string& b) { b.resize(600); });
  change(2, [](std::string& b) { b.clear(); });
  change(3, [](std::string& b) { std::fill(b.begin(), b.end(), '\0'); });
  std::filesystem::copy_file(blocks[5], blocks[4],
                             std::filesystem::copy_options::overwrite_existing);
  dir_.Write("blocks/tmp-killed", "half a bl");
  Create(1'000'000, 0);
  EXPECT_EQ(Read(0, 0, 6'000), absl::OkStatus());
  EXPECT_EQ(cache_->counts().fetched_bytes, 5'000);
  EXPECT_EQ(cache_->counts().reused_bytes, 1'000);
  EXPECT_EQ(Blocks(), blocks);  // what was left is gone
}

TEST_F(BlockCacheTest, AWrongBitIsFoundWhenAllHasPassed) {
  using Kind = ObjectChecksum::Kind;
  for (const Kind kind : {Kind::kMd5, Kind::kCrc64Nvme}) {
    for (const int64_t ahead : {0, 20'000}) {
      origin_.kind = kind;
      origin_.version = absl::StrCat(" ", static_cast<int>(kind), ahead);
      origin_.flip = 77'777;
      origin_.num_checksums = 0;
      Create(1'000'000, ahead);
      // From the end to the front, so that a hash has to wait.
      for (int64_t at = kFileBytes - 3; at >= 0; at -= 1000) {
        if (at / 1000 != 77) {
          ASSERT_EQ(Read(0, at, 1), absl::OkStatus());
        }
      }
      EXPECT_EQ(cache_->counts().num_partly_read, 1);
      const absl::Status status = Read(0, 77'000, 3);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_NE(std::string(status.message()).find("s3://b/0: the bytes"),
                std::string::npos)
          << status;
      EXPECT_EQ(Read(0, 5, 1).code(), absl::StatusCode::kDataLoss);
      EXPECT_EQ(origin_.num_checksums, 1);
      // Nothing of it is left for the next.
      origin_.flip = -1;
      Create(1'000'000, ahead);
      EXPECT_EQ(ReadOn(0, 999), absl::OkStatus());
      EXPECT_EQ(cache_->counts().reused_bytes, 0);
      EXPECT_EQ(cache_->counts().num_compared, 1);
      origin_.flip = 77'777;
      Create(1'000'000, ahead);
      std::vector<uint8_t> bytes(kFileBytes);
      EXPECT_EQ(cache_->Read(1, 0, absl::MakeSpan(bytes)).code(),
                absl::StatusCode::kDataLoss);
    }
  }
}

TEST_F(BlockCacheTest, ChecksumsThroughASmallCache) {
  origin_.kind = ObjectChecksum::Kind::kSha256;
  Create(20'000, 8'000);
  EXPECT_EQ(ReadOn(0, 1'234), absl::OkStatus());
  EXPECT_EQ(cache_->counts().num_compared, 1);
  // Blocks that gave way are what they were, or it is told.
  EXPECT_EQ(Read(0, 1'000, 10), absl::OkStatus());
  origin_.flip = 3'500;
  EXPECT_EQ(Read(0, 3'000, 10).code(), absl::StatusCode::kDataLoss);
}

TEST_F(BlockCacheTest, WhatIsReadALittleOfIsNotAskedFor) {
  Create(1'000'000, 0);
  for (uint32_t file = 0; file < 5; ++file) {
    ASSERT_EQ(Read(file, 0, 3'000), absl::OkStatus());
  }
  EXPECT_EQ(origin_.num_checksums, 0);
  EXPECT_EQ(cache_->counts().num_partly_read, 5);
  ASSERT_EQ(ReadOn(1, 5'000), absl::OkStatus());
  EXPECT_EQ(origin_.num_checksums, 1);
  EXPECT_EQ(cache_->counts().num_without_checksum, 1);
  EXPECT_EQ(cache_->counts().num_compared, 0);
}

// Reads through a cache of its own until it is killed.
[[noreturn]] void ReadForever(const std::string& dir, int64_t max_bytes) {
  FakeOrigin origin;
  const auto cache = BlockCache::Create({dir, max_bytes, 1000, 8'000}, origin);
  std::vector<uint8_t> bytes(4'000);
  for (int64_t i = 0; cache.ok(); ++i) {
    const absl::Status read = (*cache)->Read(
        static_cast<uint32_t>(i % 5), i * 7919 % 96'000, absl::MakeSpan(bytes));
    if (!read.ok()) break;
  }
  _exit(1);
}

TEST_F(BlockCacheTest, ProcessesShareAFolderAndMayBeKilled) {
  constexpr int64_t kMaxBytes = 60'000;
  for (int round = 0; round < 4; ++round) {
    const pid_t child = fork();
    if (child == 0) ReadForever(dir_.path(), kMaxBytes);
    Create(kMaxBytes, 8'000);
    for (int64_t i = 0; i < 100; ++i) {
      ASSERT_EQ(Read(static_cast<uint32_t>(i % 5), i * 3571 % 96'000, 4'000),
                absl::OkStatus());
    }
    EXPECT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the other process failed";
    cache_.reset();
    EXPECT_LE(BytesBelow(dir_.path()), kMaxBytes + 2'000);
  }
  Create(kMaxBytes, 0);
  for (const std::string& path : Blocks()) {
    EXPECT_EQ(path.find("tmp-"), std::string::npos) << path;
  }
  EXPECT_GT(Blocks().size(), 20u);
  for (uint32_t file = 0; file < 5; ++file) {
    EXPECT_EQ(ReadOn(file, 1'000), absl::OkStatus());
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
