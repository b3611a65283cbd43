#include "espalier/io/mapped_files.h"

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/checkpoint_reader.h"
#include "espalier/io/internal/test_util.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class MappedFilesTest : public ::testing::Test {
 protected:
  MappedFilesTest() {
    const std::string json =
        R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
    // Aligned: a tensor that is not is a copy.
    path_ = dir_.Write("model.safetensors",
                       test::SafetensorsBytes(json + "  ", "12345678"));
    auto reader = CheckpointReader::Open(dir_.path(), ReadMode::kMap);
    EXPECT_TRUE(reader.ok()) << reader.status();
    auto tensor = reader->Take(context_->cpu(), "w");
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    weight_.emplace(*std::move(tensor));
    files_ = reader->catalog().Mapped();
  }
  // The same bytes, a second later.
  void Touch() {
    std::filesystem::last_write_time(
        path_,
        std::filesystem::last_write_time(path_) + std::chrono::seconds(1));
  }

  test::TempDir dir_;
  std::unique_ptr<Context> context_ = test::MakeContext();
  std::string path_;
  std::optional<Tensor> weight_;
  MappedFiles files_;
};

TEST_F(MappedFilesTest, NamesAFileThatWasWrittenInPlace) {
  EXPECT_EQ(files_.CheckUnchanged(), absl::OkStatus());
  Touch();
  const absl::Status changed = files_.CheckUnchanged();
  EXPECT_EQ(changed.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(changed.message(),
              AllOf(HasSubstr(path_), HasSubstr("time of its last change")));
  // Nothing points into it any more.
  weight_.reset();
  EXPECT_EQ(files_.CheckUnchanged(), absl::OkStatus());
}

TEST_F(MappedFilesTest, NamesBothSizes) {
  const auto size = std::filesystem::file_size(path_);
  std::filesystem::resize_file(path_, size - 1);
  EXPECT_THAT(files_.CheckUnchanged().message(),
              HasSubstr(std::to_string(size - 1) + " bytes, expected " +
                        std::to_string(size) + ";"));
}

TEST_F(MappedFilesTest, AFileOfAnotherInodeIsNotTheMappedOne) {
  dir_.Write("new", "x");
  std::filesystem::rename(dir_.Path("new"), path_);
  EXPECT_EQ(files_.CheckUnchanged(), absl::OkStatus());
  std::filesystem::remove(path_);
  EXPECT_EQ(files_.CheckUnchanged(), absl::OkStatus());
}

TEST_F(MappedFilesTest, FilesThatAreReadAreNotMapped) {
  auto reader = CheckpointReader::Open(dir_.path(), ReadMode::kRead);
  ASSERT_TRUE(reader.ok());
  const auto tensor = reader->Take(context_->cpu(), "w");
  ASSERT_TRUE(tensor.ok());
  const MappedFiles none = reader->catalog().Mapped();
  Touch();
  EXPECT_EQ(none.CheckUnchanged(), absl::OkStatus());
}

}  // namespace
}  // namespace espalier
