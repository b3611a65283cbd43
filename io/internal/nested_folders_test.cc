#include "espalier/io/internal/nested_folders.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"

namespace espalier::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class NestedFoldersTest : public ::testing::Test {
 protected:
  NestedFoldersTest() {
    std::filesystem::create_directories(dir_.Path("model/deep"));
    std::filesystem::create_directory(dir_.Path("other"));
    std::filesystem::create_directory_symlink(dir_.Path("model"),
                                              dir_.Path("link"));
  }
  absl::StatusCode Code(const std::string& source, const std::string& out) {
    return CheckApart(dir_.Path(source), dir_.Path(out)).code();
  }

  test::TempDir dir_;
};

TEST_F(NestedFoldersTest, FoldersBesideEachOtherAreApart) {
  for (const std::string out :
       {"new", "new/", "other", "other/new", "model2", "not/there/yet",
        "model/../new", "model.partial2"}) {
    EXPECT_EQ(Code("model", out), absl::StatusCode::kOk) << out;
    EXPECT_EQ(Code("link", out), absl::StatusCode::kOk) << out;
  }
  EXPECT_EQ(Code("not_there", "new"), absl::StatusCode::kOk);
}

TEST_F(NestedFoldersTest, ANewFolderInTheSourceIsRefused) {
  for (const std::string source :
       {"model", "model/", "link", "other/../link"}) {
    for (const std::string out :
         {"model", "model/new", "model/new/", "model/deep/a/b", "link/new",
          "link/deep/../new", "other/../model/new", "model//new"}) {
      EXPECT_EQ(Code(source, out), absl::StatusCode::kInvalidArgument)
          << source << " to " << out;
    }
  }
  EXPECT_THAT(CheckApart(dir_.Path("link"), dir_.Path("model/new")).message(),
              AllOf(HasSubstr("lies in the source"), HasSubstr("/link"),
                    HasSubstr("/model/new")));
}

TEST_F(NestedFoldersTest, ASourceInTheNewFolderIsRefused) {
  std::filesystem::create_directories(dir_.Path("out.partial/source"));
  std::filesystem::create_directory_symlink(dir_.Path("out.partial/source"),
                                            dir_.Path("far"));
  for (const std::string source : {"out.partial/source", "far"}) {
    EXPECT_EQ(Code(source, "out"), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Code(source, "out/"), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Code(source, "out.partial"), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(Code("model/deep", "model"), absl::StatusCode::kInvalidArgument);
}

TEST_F(NestedFoldersTest, RelativePathsMeanTheWorkingFolder) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir_.path());
  EXPECT_FALSE(CheckApart("model", "model/new").ok());
  EXPECT_FALSE(CheckApart(".", "new").ok());
  EXPECT_TRUE(CheckApart("model", "new").ok());
  EXPECT_FALSE(CheckApart("model", dir_.Path("link/new")).ok());
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace espalier::internal
