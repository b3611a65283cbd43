#include "espalier/io/atomic_directory.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/atomic_file.h"
#include "espalier/io/internal/test_util.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::set<std::string> Names(const std::string& dir) {
  std::set<std::string> names;
  for (const auto& item : std::filesystem::directory_iterator(dir)) {
    names.insert(item.path().filename().string());
  }
  return names;
}

class AtomicDirectoryTest : public ::testing::Test {
 protected:
  absl::Status Save(const std::string& name, const std::string& file,
                    AtomicDirectory::Existing existing) {
    auto dir = AtomicDirectory::Create(dir_.Path(name), existing);
    if (!dir.ok()) return dir.status();
    absl::Status status = WriteFileAtomically(dir->Path(file), file);
    return status.ok() ? dir->Commit() : status;
  }

  test::TempDir dir_;
};

TEST_F(AtomicDirectoryTest, AppearsAtCommit) {
  auto dir = AtomicDirectory::Create(dir_.Path("a/b/out/"));
  ASSERT_TRUE(dir.ok()) << dir.status();
  ASSERT_TRUE(WriteFileAtomically(dir->Path("f"), "text").ok());
  std::filesystem::create_directory(dir->Path("sub"));
  ASSERT_TRUE(WriteFileAtomically(dir->Path("sub/g"), "more").ok());
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("a/b/out")));
  ASSERT_TRUE(dir->Commit().ok());
  EXPECT_THAT(Names(dir_.Path("a/b")), ElementsAre("out"));
  EXPECT_THAT(Names(dir_.Path("a/b/out")), ElementsAre("f", "sub"));
  EXPECT_EQ(test::ReadFile(dir_.Path("a/b/out/sub/g")), "more");
  EXPECT_FALSE(dir->Commit().ok());
}

TEST_F(AtomicDirectoryTest, RemovesWhatAKilledRunLeft) {
  const pid_t child = fork();
  if (child == 0) {
    auto dir = AtomicDirectory::Create(dir_.Path("out"));
    if (dir.ok() && WriteFileAtomically(dir->Path("f"), "text").ok()) {
      raise(SIGKILL);
    }
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const std::set<std::string> left = Names(dir_.path());
  ASSERT_EQ(left.size(), 1u);
  // A folder of another target, and one that is written now, stay.
  std::filesystem::create_directory(dir_.Path(".other.tmp-1"));
  auto busy = AtomicDirectory::Create(dir_.Path("out"));
  ASSERT_TRUE(busy.ok()) << busy.status();
  EXPECT_THAT(busy->removed(), ElementsAre(dir_.Path(*left.begin())));
  auto next = AtomicDirectory::Create(dir_.Path("out"));
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_THAT(next->removed(), IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(busy->path()));
  EXPECT_EQ(Names(dir_.path()).size(), 3u);
  ASSERT_TRUE(next->Commit().ok());
  EXPECT_EQ(Names(dir_.path()).size(), 3u);
}

TEST_F(AtomicDirectoryTest, LeavesNothingBehindWithoutCommit) {
  {
    auto dir = AtomicDirectory::Create(dir_.Path("out"));
    ASSERT_TRUE(dir.ok()) << dir.status();
    ASSERT_TRUE(WriteFileAtomically(dir->Path("f"), "text").ok());
    const AtomicDirectory moved = *std::move(dir);
  }
  EXPECT_THAT(Names(dir_.path()), IsEmpty());
}

TEST_F(AtomicDirectoryTest, RefusesATakenName) {
  using Existing = AtomicDirectory::Existing;
  std::filesystem::create_directory(dir_.Path("out"));
  ASSERT_TRUE(Save("out", "one", Existing::kRefuse).ok());
  const absl::Status status = Save("out", "two", Existing::kRefuse);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("out is there"));
  EXPECT_THAT(Names(dir_.Path("out")), ElementsAre("one"));
  dir_.Write("file", "x");
  EXPECT_FALSE(Save("file", "two", Existing::kRefuse).ok());
}

// Where Commit could not rename to, nothing is begun.
TEST_F(AtomicDirectoryTest, RefusesLinksAndEmptyPathsAtOnce) {
  std::filesystem::create_directory(dir_.Path("empty"));
  std::filesystem::create_directory_symlink(dir_.Path("empty"),
                                            dir_.Path("link"));
  std::filesystem::create_symlink(dir_.Path("nowhere"), dir_.Path("dangling"));
  const std::set<std::string> before = Names(dir_.path());
  for (const char* name : {"link", "link/", "dangling"}) {
    for (const absl::Status& status :
         {AtomicDirectory::Create(dir_.Path(name)).status(),
          AtomicDirectory::CreatePartial(dir_.Path(name), false).status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << name;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("is there already and is not an empty folder"));
    }
  }
  EXPECT_EQ(Names(dir_.path()), before);
  for (const absl::Status& status :
       {AtomicDirectory::Create("").status(),
        AtomicDirectory::CreatePartial("", false).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("is empty"));
  }
}

TEST_F(AtomicDirectoryTest, RefusesANameTakenMeanwhile) {
  auto dir = AtomicDirectory::Create(dir_.Path("out"));
  ASSERT_TRUE(dir.ok()) << dir.status();
  ASSERT_TRUE(Save("out", "one", AtomicDirectory::Existing::kRefuse).ok());
  EXPECT_EQ(dir->Commit().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Names(dir_.Path("out")), ElementsAre("one"));
}

TEST_F(AtomicDirectoryTest, ReplacesWithoutRemains) {
  using Existing = AtomicDirectory::Existing;
  ASSERT_TRUE(Save("out", "one", Existing::kReplace).ok());
  ASSERT_TRUE(Save("out", "two", Existing::kReplace).ok());
  EXPECT_THAT(Names(dir_.Path("out")), ElementsAre("two"));
  EXPECT_THAT(Names(dir_.path()), ElementsAre("out"));
}

// A rename would quietly put a file in the place of what is there.
TEST(AtomicFileTest, LinksPipesAndDevicesAreLeftAlone) {
  const test::TempDir dir;
  dir.Write("target", "old");
  ASSERT_EQ(symlink("target", dir.Path("link").c_str()), 0);
  ASSERT_EQ(mkfifo(dir.Path("pipe").c_str(), 0600), 0);
  for (const char* name : {"link", "pipe"}) {
    const absl::Status status = WriteFileAtomically(dir.Path(name), "new");
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is no regular file"));
  }
  EXPECT_TRUE(std::filesystem::is_symlink(dir.Path("link")));
  EXPECT_EQ(test::ReadFile(dir.Path("target")), "old");
  EXPECT_TRUE(WriteFileAtomically(dir.Path("target"), "new").ok());
  EXPECT_EQ(test::ReadFile(dir.Path("target")), "new");
}

}  // namespace
}  // namespace espalier
