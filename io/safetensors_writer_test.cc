#include "espalier/io/safetensors_writer.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"
#include "espalier/io/safetensors_reader.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

int64_t NumFiles(const std::string& dir) {
  return std::distance(std::filesystem::directory_iterator(dir),
                       std::filesystem::directory_iterator());
}

class SafetensorsWriterTest : public ::testing::Test {
 protected:
  std::string Refusal(const std::vector<TensorSpec>& tensors,
                      const std::map<std::string, std::string>& metadata = {}) {
    const auto writer = SafetensorsWriter::Create(path_, tensors, metadata);
    EXPECT_EQ(NumFiles(dir_.path()), writer.ok() ? 1 : 0);
    return writer.ok() ? "" : std::string(writer.status().message());
  }

  test::TempDir dir_;
  std::string path_ = dir_.Path("t.safetensors");
  std::unique_ptr<Context> context_ = test::MakeContext();
};

TEST_F(SafetensorsWriterTest, WritesTheDocumentedBytes) {
  Device& cpu = context_->cpu();
  const Tensor a = Tensor::FromHost<float>(cpu, {1, 2}, {1, -1});
  const Tensor b = Tensor::FromHost<uint8_t>(cpu, {3}, {7, 8, 9});
  const Tensor c = Tensor::FromHost<float>(cpu, {}, {0.5f});
  ASSERT_TRUE(WriteSafetensors(path_, {{"b", b}, {"c", c}, {"a", a}},
                               {{"format", "pt"}})
                  .ok());
  std::string json =
      "{\"__metadata__\":{\"format\":\"pt\"},"
      "\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
      "\"c\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[8,12]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[12,15]}}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(test::ReadFile(path_),
            test::SafetensorsBytes(
                json, test::BytesOf<float>({1, -1, 0.5f}) + "\7\x8\x9"));
  EXPECT_EQ(NumFiles(dir_.path()), 1);
}

TEST_F(SafetensorsWriterTest, ReadsBack) {
  Device& cpu = context_->cpu();
  const Tensor t = Tensor::FromHost<double>(cpu, {2, 3}, {1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(
      WriteSafetensors(path_, {{"t\"\n\xC3\xA9", t.Transpose(0, 1)},
                               {"empty", Tensor::Empty(cpu, {0, 4}, kF32)}})
          .ok());
  const auto file = SafetensorsFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(ToDoubles(file->Load(cpu, "t\"\n\xC3\xA9").value()),
              ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_EQ(file->Load(cpu, "empty").value().shape(), (Shape{0, 4}));
  EXPECT_EQ(file->data_start() % 8, 0);
  EXPECT_EQ(std::filesystem::status(path_).permissions() &
                std::filesystem::perms::group_read,
            std::filesystem::perms::group_read);
}

TEST_F(SafetensorsWriterTest, WritesFromADeviceThatTheHostCannotReach) {
  const Tensor a = Tensor::FromHost<float>(context_->cpu(), {2}, {3, 4})
                       .CopyTo(context_->sim());
  ASSERT_TRUE(WriteSafetensors(path_, {{"a", a}}).ok());
  const auto file = SafetensorsFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(ToDoubles(file->Load(context_->cpu(), "a").value()),
              ElementsAre(3, 4));
}

TEST_F(SafetensorsWriterTest, WritesAnEmptyFile) {
  ASSERT_TRUE(WriteSafetensors(path_, {}).ok());
  EXPECT_EQ(test::ReadFile(path_), test::SafetensorsBytes("{}      ", ""));
  ASSERT_TRUE(WriteSafetensors(path_, {}, {{"k", "v"}}).ok());
  const auto file = SafetensorsFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->metadata().at("k"), "v");
}

TEST_F(SafetensorsWriterTest, StreamsPiecesInAnyOrder) {
  auto writer =
      SafetensorsWriter::Create(path_, {{"x", SafetensorsDType::kF4, {2, 4}},
                                        {"y", SafetensorsDType::kI16, {2}}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  const uint8_t x[] = {1, 2, 3, 4};
  const uint8_t y[] = {5, 6, 7, 8};
  const auto piece = [](const uint8_t* bytes, size_t count) {
    return absl::MakeConstSpan(bytes, count);
  };
  EXPECT_TRUE(writer->Append("x", piece(x, 1)).ok());
  EXPECT_TRUE(writer->Append("y", piece(y, 4)).ok());
  EXPECT_THAT(std::string(writer->Finish().message()),
              HasSubstr("tensor \"x\": 1 of 4 bytes were written"));
  EXPECT_THAT(std::string(writer->Append("x", piece(x, 4)).message()),
              HasSubstr("5 bytes for F4 [2, 4], which takes 4"));
  EXPECT_EQ(writer->Append("z", piece(x, 1)).code(),
            absl::StatusCode::kNotFound);
  EXPECT_TRUE(writer->Append("x", piece(x + 1, 3)).ok());
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(writer->Finish().ok());
  const auto file = SafetensorsFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<uint8_t> bytes(4);
  ASSERT_TRUE(file->ReadBytes(*file->Find("x"), 0, absl::MakeSpan(bytes)).ok());
  EXPECT_THAT(bytes, ElementsAre(1, 2, 3, 4));
  ASSERT_TRUE(file->ReadBytes(*file->Find("y"), 0, absl::MakeSpan(bytes)).ok());
  EXPECT_THAT(bytes, ElementsAre(5, 6, 7, 8));
}

TEST_F(SafetensorsWriterTest, LeavesNothingBehindUnfinished) {
  dir_.Write("t.safetensors", "old");
  {
    auto writer =
        SafetensorsWriter::Create(path_, {{"x", SafetensorsDType::kU8, {4}}});
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_EQ(NumFiles(dir_.path()), 2);
  }
  EXPECT_EQ(NumFiles(dir_.path()), 1);
  EXPECT_EQ(test::ReadFile(path_), "old");
}

TEST_F(SafetensorsWriterTest, AMappedOldFileKeepsItsBytes) {
  Device& cpu = context_->cpu();
  ASSERT_TRUE(
      WriteSafetensors(path_, {{"x", Tensor::FromHost<float>(cpu, {1}, {1})}})
          .ok());
  const auto old = SafetensorsFile::Open(path_);
  ASSERT_TRUE(old.ok()) << old.status();
  const Tensor x = old->Load(cpu, "x").value();
  ASSERT_TRUE(
      WriteSafetensors(path_, {{"x", Tensor::FromHost<float>(cpu, {1}, {2})}})
          .ok());
  EXPECT_THAT(ToDoubles(x), ElementsAre(1));
  EXPECT_THAT(ToDoubles(old->Load(cpu, "x").value()), ElementsAre(1));
  EXPECT_THAT(ToDoubles(SafetensorsFile::Open(path_)->Load(cpu, "x").value()),
              ElementsAre(2));
}

TEST_F(SafetensorsWriterTest, RefusesWhatAReaderWould) {
  constexpr SafetensorsDType kU8Type = SafetensorsDType::kU8;
  const std::string nul("a\0b", 3);
  EXPECT_THAT(Refusal({{"a", kU8Type, {1}}, {"a", kU8Type, {2}}}),
              AllOf(HasSubstr("t.safetensors"), HasSubstr("\"a\": named "
                                                          "twice")));
  EXPECT_THAT(Refusal({{"", kU8Type, {1}}}), HasSubstr("empty tensor name"));
  EXPECT_THAT(Refusal({{nul, kU8Type, {1}}}), HasSubstr("NUL"));
  EXPECT_THAT(Refusal({{"\xff", kU8Type, {1}}}), HasSubstr("UTF-8"));
  EXPECT_THAT(Refusal({{"__metadata__", kU8Type, {1}}}), HasSubstr("reserved"));
  EXPECT_THAT(Refusal({{"a", kU8Type, {-1}}}), HasSubstr("negative"));
  EXPECT_THAT(Refusal({{"a",
                        SafetensorsDType::kF64,
                        {int64_t{1} << 31, int64_t{1} << 31}}}),
              HasSubstr("too large"));
  EXPECT_THAT(Refusal({{"a", SafetensorsDType::kF4, {3}}}),
              HasSubstr("whole bytes"));
  EXPECT_THAT(Refusal({{"a", kU8Type, {1}}}, {{"k", "\xff"}}),
              HasSubstr("UTF-8"));
}

TEST_F(SafetensorsWriterTest, RefusesWhenSpaceIsShort) {
  const auto writer = SafetensorsWriter::Create(
      path_, {{"huge", SafetensorsDType::kU8, {int64_t{1} << 50}}});
  EXPECT_EQ(writer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(writer.status().message()),
              AllOf(HasSubstr("needs 1125899906842"), HasSubstr("are free")));
  EXPECT_EQ(NumFiles(dir_.path()), 0);
}

TEST_F(SafetensorsWriterTest, RefusesAnotherTensorThanPromised) {
  auto writer =
      SafetensorsWriter::Create(path_, {{"a", SafetensorsDType::kF32, {2}}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  Device& cpu = context_->cpu();
  EXPECT_THAT(
      std::string(writer->Write("a", Tensor::Zeros(cpu, {3}, kF32)).message()),
      HasSubstr("is f32 [3] on cpu, promised as F32 [2]"));
  EXPECT_FALSE(writer->Write("a", Tensor::Zeros(cpu, {2}, kBF16)).ok());
  EXPECT_TRUE(writer->Write("a", Tensor::Zeros(cpu, {2}, kF32)).ok());
  EXPECT_TRUE(writer->Finish().ok());
  EXPECT_FALSE(writer->Finish().ok());
  EXPECT_THAT(std::string(WriteSafetensors(path_, {{"n", Tensor()}}).message()),
              HasSubstr("\"n\": is absent"));
}

TEST_F(SafetensorsWriterTest, NamesAFolderThatIsNotThere) {
  const auto writer = SafetensorsWriter::Create(
      dir_.Path("none/t.safetensors"), {{"a", SafetensorsDType::kU8, {1}}});
  EXPECT_EQ(writer.status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace espalier
