#include "espalier/io/output_place.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

bool IsEmpty(const std::string& dir) { return std::filesystem::is_empty(dir); }

TEST(OutputPlaceTest, OneHolderAtATime) {
  const test::TempDir dir;
  std::filesystem::create_directory(dir.Path("real"));
  std::filesystem::create_directory_symlink(dir.Path("real"), dir.Path("link"));
  {
    const auto first = OutputPlace::Hold(dir.Path("real/out"));
    ASSERT_TRUE(first.ok()) << first.status();
    for (const std::string name : {"real/out", "real/out/", "link/out"}) {
      const absl::Status second = OutputPlace::Hold(dir.Path(name)).status();
      EXPECT_EQ(second.code(), absl::StatusCode::kAborted) << name;
      EXPECT_THAT(
          second.message(),
          AllOf(HasSubstr("/out: another run, process "),
                HasSubstr(absl::StrCat(getpid())), HasSubstr(".out.lock")));
    }
    EXPECT_TRUE(OutputPlace::Hold(dir.Path("real/other")).ok());
  }
  EXPECT_TRUE(IsEmpty(dir.Path("real")));
  EXPECT_TRUE(OutputPlace::Hold(dir.Path("real/out")).ok());
}

TEST(OutputPlaceTest, ARefusedOneLeavesTheHoldersLock) {
  const test::TempDir dir;
  const auto first = OutputPlace::Hold(dir.Path("out"));
  ASSERT_TRUE(first.ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(OutputPlace::Hold(dir.Path("out")).ok()) << i;
  }
}

TEST(OutputPlaceTest, AMovedOneHoldsOnce) {
  const test::TempDir dir;
  std::optional<OutputPlace> kept;
  {
    auto first = OutputPlace::Hold(dir.Path("out"));
    ASSERT_TRUE(first.ok());
    kept.emplace(*std::move(first));
  }
  EXPECT_FALSE(OutputPlace::Hold(dir.Path("out")).ok());
  kept.reset();
  EXPECT_TRUE(OutputPlace::Hold(dir.Path("out")).ok());
}

TEST(OutputPlaceTest, AKilledProcessHoldsNothing) {
  const test::TempDir dir;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto place = OutputPlace::Hold(dir.Path("out"));
    (void)!write(ready[1], place.ok() ? "y" : "n", 1);
    pause();
    _exit(0);
  }
  char held = 0;
  ASSERT_EQ(read(ready[0], &held, 1), 1);
  EXPECT_EQ(held, 'y');
  EXPECT_THAT(OutputPlace::Hold(dir.Path("out")).status().message(),
              HasSubstr(absl::StrCat("process ", child)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  EXPECT_TRUE(std::filesystem::exists(dir.Path(".out.lock")));
  EXPECT_TRUE(OutputPlace::Hold(dir.Path("out")).ok());
  EXPECT_TRUE(IsEmpty(dir.path()));
}

TEST(OutputPlaceTest, NamesTheSpaceThatIsMissing) {
  const test::TempDir dir;
  const auto place = OutputPlace::Hold(dir.Path("out"));
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place->CheckSpace(1), absl::OkStatus());
  const absl::Status full =
      place->CheckSpace(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(),
              AllOf(HasSubstr(dir.Path("out")), HasSubstr("are free")));
}

TEST(OutputPlaceTest, FailsWhereNoFolderCanBeMade) {
  const test::TempDir dir;
  dir.Write("file", "x");
  EXPECT_FALSE(OutputPlace::Hold(dir.Path("file/out")).ok());
  EXPECT_EQ(OutputPlace::Hold(dir.Path("file")).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(std::filesystem::exists(dir.Path(".file.lock")));
}

}  // namespace
}  // namespace espalier
