// In which order what is written reaches the disk: the calls of fsync and
// rename, which this program takes the place of and passes on.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/atomic_directory.h"
#include "espalier/io/atomic_file.h"
#include "espalier/io/checkpoint_writer.h"
#include "espalier/io/internal/test_util.h"

namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): a seam
std::vector<std::string>* calls = nullptr;

// Temporary names without what differs from run to run.
std::string Plain(absl::string_view path) {
  std::string plain;
  for (size_t at = 0; at < path.size();) {
    if (!absl::StartsWith(path.substr(at), ".tmp-")) {
      plain += path[at++];
      continue;
    }
    plain += ".tmp";
    while (at < path.size() && path[at] != '/') ++at;
  }
  return plain;
}

}  // namespace

extern "C" int fsync(int file) {
  if (calls != nullptr) {
    char path[4096] = {};
    const std::string link = absl::StrCat("/proc/self/fd/", file);
    if (readlink(link.c_str(), path, sizeof(path) - 1) > 0) {
      calls->push_back(absl::StrCat("fsync ", Plain(path)));
    }
  }
  return static_cast<int>(syscall(SYS_fsync, file));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  if (calls != nullptr) {
    calls->push_back(absl::StrCat("rename ", Plain(from), " ", Plain(to)));
  }
  return static_cast<int>(
      syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace espalier {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

class DurabilityTest : public ::testing::Test {
 protected:
  void SetUp() override { calls = &calls_; }
  void TearDown() override { calls = nullptr; }

  std::string Path(const std::string& name) const {
    return std::filesystem::canonical(dir_.path()).string() + "/" + name;
  }
  // Every file and folder of `out` was flushed, under its temporary or its own
  // name, before the folder `temporary` got the name `out`; then the folder
  // above was.
  void ExpectFlushedThenNamed(const std::string& temporary,
                              const std::string& out) {
    const auto named = std::find(calls_.begin(), calls_.end(),
                                 absl::StrCat("rename ", temporary, " ", out));
    ASSERT_NE(named, calls_.end());
    const std::vector<std::string> before(calls_.begin(), named);
    EXPECT_THAT(before, Contains("fsync " + temporary));
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(out)) {
      const std::string name = entry.path().lexically_relative(out).string();
      EXPECT_THAT(before,
                  Contains(absl::StrCat("fsync ", temporary, "/", name)))
          << name;
    }
    EXPECT_EQ(
        std::vector<std::string>(named + 1, calls_.end()),
        std::vector<std::string>{
            "fsync " + std::filesystem::path(out).parent_path().string()});
  }

  test::TempDir dir_;
  std::vector<std::string> calls_;
};

TEST_F(DurabilityTest, AFileIsFlushedBeforeItGetsItsName) {
  ASSERT_TRUE(WriteFileAtomically(Path("f"), "text").ok());
  EXPECT_THAT(calls_,
              ElementsAre("fsync " + Path(".f.tmp"),
                          "rename " + Path(".f.tmp") + " " + Path("f"),
                          "fsync " + Path("").substr(0, Path("").size() - 1)));
}

TEST_F(DurabilityTest, AFolderIsFlushedWholeBeforeItGetsItsName) {
  auto dir = AtomicDirectory::Create(Path("out"));
  ASSERT_TRUE(dir.ok()) << dir.status();
  std::filesystem::create_directories(dir->Path("sub/deep"));
  // Written by whatever means.
  dir_.Write(
      std::filesystem::path(dir->path()).filename().string() + "/sub/deep/g",
      "more");
  ASSERT_TRUE(WriteFileAtomically(dir->Path("f"), "text").ok());
  ASSERT_TRUE(dir->Commit().ok());
  ExpectFlushedThenNamed(Path(".out.tmp"), Path("out"));
}

TEST_F(DurabilityTest, ACheckpointIsFlushedWholeBeforeItGetsItsName) {
  CheckpointWriterOptions options;
  options.max_shard_bytes = 8;
  auto writer = CheckpointWriter::Create(Path("out"),
                                         {{{"a", SafetensorsDType::kU8, {8}}},
                                          {{"b", SafetensorsDType::kU8, {8}}}},
                                         options);
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::vector<uint8_t> bytes(8, 1);
  ASSERT_TRUE(writer->Append("a", bytes).ok());
  // A finished shard lasts before the next one begins.
  EXPECT_EQ(calls_.back(), "fsync " + Path("out.partial"));
  EXPECT_THAT(calls_,
              Contains(absl::StrCat("fsync ", Path("out.partial/"),
                                    ".model-00001-of-00002.safetensors.tmp")));
  ASSERT_TRUE(writer->Append("b", bytes).ok());
  ASSERT_TRUE(writer->AddFile("config.json", "{}").ok());
  ASSERT_TRUE(writer->Finish().ok());
  ExpectFlushedThenNamed(Path("out.partial"), Path("out"));
}

}  // namespace
}  // namespace espalier
