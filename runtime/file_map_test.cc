#include "espalier/runtime/file_map.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/runtime/context.h"
#include "espalier/runtime/guard.h"
#include "espalier/runtime/tensor.h"

namespace espalier {

namespace {

using ::testing::HasSubstr;

// A file of this process alone, gone at the end.
class TestFile {
 public:
  TestFile(absl::string_view name, absl::string_view text)
      : path_(absl::StrCat(::testing::TempDir(), name, ".", getpid())) {
    std::FILE* file = std::fopen(path_.c_str(), "wb");
    EXPECT_NE(file, nullptr);
    EXPECT_EQ(std::fwrite(text.data(), 1, text.size(), file), text.size());
    EXPECT_EQ(std::fclose(file), 0);
  }
  ~TestFile() { unlink(path_.c_str()); }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

int64_t ResidentPages(const FileMap& map) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> in_core(
      static_cast<size_t>((map.size() + page - 1) / page));
  EXPECT_EQ(mincore(const_cast<uint8_t*>(map.bytes().data()),
                    static_cast<size_t>(map.size()), in_core.data()),
            0);
  int64_t count = 0;
  for (const unsigned char flags : in_core) count += flags & 1;
  return count;
}

TEST(FileMapTest, ShowsTheBytesAfterTheNameIsGone) {
  const TestFile file("file_map_bytes", "three");
  auto map = FileMap::Open(file.path());
  ASSERT_TRUE(map.ok()) << map.status();
  ASSERT_EQ(unlink(file.path().c_str()), 0);
  EXPECT_EQ((*map)->path(), file.path());
  EXPECT_EQ((*map)->size(), 5);
  EXPECT_FALSE((*map)->writable());
  EXPECT_EQ(std::memcmp((*map)->bytes().data(), "three", 5), 0);
}

TEST(FileMapTest, EmptyFileIsAnEmptySpan) {
  const TestFile file("file_map_empty", "");
  auto map = FileMap::Open(file.path());
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_TRUE((*map)->bytes().empty());
  (*map)->WillNeed(0, 0);
  (*map)->DontNeed(0, 0);
}

TEST(FileMapTest, RefusalsNameThePath) {
  auto missing = FileMap::Open("/no/such/file");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(),
              HasSubstr("cannot open /no/such/file: No such file"));
  auto directory = FileMap::Open(::testing::TempDir());
  EXPECT_EQ(directory.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(directory.status().message(), HasSubstr("is a directory"));
  const std::string fifo =
      absl::StrCat(::testing::TempDir(), "file_map_fifo.", getpid());
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(FileMap::Open(fifo).status().code(),
            absl::StatusCode::kInvalidArgument);
  unlink(fifo.c_str());
}

TEST(FileMapTest, AdviceKeepsTheBytesAndRefusesBadRanges) {
  std::string text(3 * 65536 + 17, 'x');
  text.back() = 'e';
  const TestFile file("file_map_advice", text);
  auto map = FileMap::Open(file.path());
  ASSERT_TRUE(map.ok()) << map.status();
  (*map)->WillNeed(100, 70000);
  (*map)->WillNeed(0, (*map)->size());
  (*map)->DontNeed(1, (*map)->size() - 1);
  (*map)->DontNeed(5, 7);
  EXPECT_EQ((*map)->bytes()[static_cast<size_t>((*map)->size() - 1)], 'e');
  const absl::Status past =
      internal::Guard([&] { (*map)->WillNeed(0, (*map)->size() + 1); });
  EXPECT_EQ(past.code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(internal::Guard([&] { (*map)->DontNeed(-1, 1); }).ok());
  EXPECT_FALSE(internal::Guard([&] { (*map)->DontNeed(8, INT64_MAX); }).ok());
}

TEST(FileMapTest, ReadOnlyMapHasNoMutableBytes) {
  const TestFile file("file_map_const", "abc");
  auto map = FileMap::Open(file.path());
  ASSERT_TRUE(map.ok()) << map.status();
  const absl::Status status =
      internal::Guard([&] { (void)(*map)->mutable_bytes(); });
  EXPECT_THAT(status.message(), HasSubstr("file_map_const"));
}

TEST(FileMapTest, OwnsTheMemoryOfATensor) {
  auto context = Context::Create({});
  ASSERT_TRUE(context.ok()) << context.status();
  const float values[3] = {1.0f, 2.0f, 3.0f};
  const TestFile file("file_map_tensor",
                      {reinterpret_cast<const char*>(values), 12});
  Tensor tensor;
  {
    auto map = FileMap::Open(file.path());
    ASSERT_TRUE(map.ok()) << map.status();
    tensor = Tensor::MapReadOnly((*context)->cpu(), {3}, kF32,
                                 (*map)->bytes().data(), *map);
  }
  EXPECT_EQ(ToDoubles(tensor), (std::vector<double>{1, 2, 3}));
}

TEST(TemporaryFileMapTest, KeepsWhatIsWrittenAcrossDontNeed) {
  constexpr int64_t kBytes = (1 << 20) + 5;
  auto map = FileMap::CreateTemporary(::testing::TempDir(), kBytes);
  ASSERT_TRUE(map.ok()) << map.status();
  const absl::Span<uint8_t> bytes = (*map)->mutable_bytes();
  ASSERT_EQ(static_cast<int64_t>(bytes.size()), kBytes);
  EXPECT_EQ(bytes[kBytes / 2], 0);
  for (int64_t i = 0; i < kBytes; ++i) {
    bytes[static_cast<size_t>(i)] = static_cast<uint8_t>(i * 7);
  }
  EXPECT_GT(ResidentPages(**map), 0);
  (*map)->DontNeed(0, kBytes);
  for (int64_t i = 0; i < kBytes; ++i) {
    ASSERT_EQ((*map)->bytes()[static_cast<size_t>(i)],
              static_cast<uint8_t>(i * 7));
  }
}

TEST(TemporaryFileMapTest, Refusals) {
  auto missing = FileMap::CreateTemporary("/no/such/dir", 10);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("/no/such/dir"));
  EXPECT_EQ(FileMap::CreateTemporary(::testing::TempDir(), -1).status().code(),
            absl::StatusCode::kInvalidArgument);
  auto huge = FileMap::CreateTemporary(::testing::TempDir(), int64_t{1} << 60);
  EXPECT_FALSE(huge.ok());
  EXPECT_THAT(huge.status().message(), HasSubstr("1152921504606846976 bytes"));
  auto empty = FileMap::CreateTemporary(::testing::TempDir(), 0);
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE((*empty)->mutable_bytes().empty());
}

}  // namespace

}  // namespace espalier
