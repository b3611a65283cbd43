#include "espalier/io/checkpoint_writer.h"

#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/checkpoint_reader.h"
#include "espalier/io/internal/test_util.h"
#include "espalier/io/json_object.h"
#include "espalier/tests/support/folder_files.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// `count` groups of two tensors, 8 + 4 bytes each.
std::vector<TensorGroup> Groups(int count) {
  std::vector<TensorGroup> groups;
  groups.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    groups.push_back(
        {{absl::StrCat("t", i, ".codes"), SafetensorsDType::kU8, {2, 4}},
         {absl::StrCat("t", i, ".scale"), SafetensorsDType::kF32, {1}}});
  }
  return groups;
}

std::string Data(int i, int bytes) {
  return std::string(static_cast<size_t>(bytes), static_cast<char>('a' + i));
}

absl::Status Append(CheckpointWriter& writer, const std::string& name,
                    const std::string& bytes) {
  return writer.Append(
      name, absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()),
                                bytes.size()));
}

absl::Status AppendGroup(CheckpointWriter& writer, int i) {
  absl::Status status =
      Append(writer, absl::StrCat("t", i, ".codes"), Data(i, 8));
  return status.ok()
             ? Append(writer, absl::StrCat("t", i, ".scale"), Data(i, 4))
             : status;
}

class CheckpointWriterTest : public ::testing::Test {
 protected:
  // A child writes two shards and is killed in the middle of the third.
  void WriteUntilKilled() {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto writer = CheckpointWriter::Create(out_, Groups(4), options_);
      if (writer.ok() && AppendGroup(*writer, 0).ok() &&
          AppendGroup(*writer, 1).ok() &&
          Append(*writer, "t2.codes", Data(2, 5)).ok()) {
        raise(SIGKILL);
      }
      _exit(1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
  }

  test::TempDir dir_;
  std::string out_ = dir_.Path("out");
  std::string partial_ = dir_.Path("out.partial");
  CheckpointWriterOptions options_;
};

TEST_F(CheckpointWriterTest, WritesShardsAndTheIndexWithTheTrueTotal) {
  options_.max_shard_bytes = 24;  // two groups
  const std::string extra = dir_.Write("tokenizer.json", "{\"x\": 1}");
  {
    auto writer = CheckpointWriter::Create(out_, Groups(5), options_);
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_EQ(writer->num_shards(), 3);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(AppendGroup(*writer, i).ok());
    ASSERT_TRUE(writer->AddFile("config.json", "{}").ok());
    ASSERT_TRUE(writer->CopyFile(extra).ok());
    EXPECT_FALSE(writer->AddFile("../config.json", "{}").ok());
    EXPECT_FALSE(std::filesystem::exists(out_));
    ASSERT_TRUE(writer->Finish().ok());
  }
  EXPECT_THAT(test::NamesIn(out_),
              ElementsAre("config.json", "model-00001-of-00003.safetensors",
                          "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors",
                          "model.safetensors.index.json", "tokenizer.json"));
  EXPECT_FALSE(std::filesystem::exists(partial_));
  EXPECT_EQ(test::ReadFile(out_ + "/tokenizer.json"), "{\"x\": 1}");
  const auto reader = CheckpointReader::Open(out_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->num_tensors(), 10);
  EXPECT_THAT(reader->warnings(), ElementsAre());
  EXPECT_EQ(reader->catalog().files()[0].count, 4u);
  const auto index =
      JsonObject::ReadFile(out_ + "/model.safetensors.index.json");
  ASSERT_TRUE(index.ok()) << index.status();
  JsonObject metadata;
  int64_t total = 0;
  ASSERT_TRUE(index->Get("metadata", &metadata).ok());
  ASSERT_TRUE(metadata.Get("total_size", &total).ok());
  EXPECT_EQ(total, 5 * 12);
  // The bytes that the JSON writer would give.
  const std::string text =
      test::ReadFile(out_ + "/model.safetensors.index.json");
  EXPECT_EQ(WriteJson(*ParseJsonText(text)).value(), text);
}

TEST_F(CheckpointWriterTest, OneShardHasNoIndex) {
  auto writer = CheckpointWriter::Create(
      out_, {{{"a", SafetensorsDType::kF32, {0, 3}}}, {}}, options_);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_THAT(test::NamesIn(out_), ElementsAre("model.safetensors"));
}

TEST_F(CheckpointWriterTest, RefusesWhatDoesNotFitThePlan) {
  options_.max_shard_bytes = 12;
  auto writer = CheckpointWriter::Create(out_, Groups(2), options_);
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_EQ(Append(*writer, "none", "x").code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(Append(*writer, "t0.codes", Data(0, 3)).ok());
  EXPECT_THAT(std::string(AppendGroup(*writer, 1).message()),
              AllOf(HasSubstr("\"t1.codes\""),
                    HasSubstr("model-00001-of-00002.safetensors is full")));
  EXPECT_THAT(
      std::string(writer->Finish().message()),
      AllOf(HasSubstr("9 bytes of model-00001"), HasSubstr("t0.codes")));
  const auto twice = CheckpointWriter::Create(
      dir_.Path("other"), {Groups(1)[0], Groups(1)[0]}, options_);
  EXPECT_THAT(std::string(twice.status().message()), HasSubstr("named twice"));
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("other.partial")));
  dir_.Write("file", "");
  EXPECT_EQ(
      CheckpointWriter::Create(dir_.Path("file"), {}, options_).status().code(),
      absl::StatusCode::kAlreadyExists);
}

TEST_F(CheckpointWriterTest, ResumesAfterAKill) {
  options_.max_shard_bytes = 12;
  options_.fingerprint = "source 1";
  WriteUntilKilled();
  // Plan, notes, two shards, a temporary one.
  EXPECT_EQ(test::NamesIn(partial_).size(), 5u);

  EXPECT_THAT(std::string(CheckpointWriter::Create(out_, Groups(4), options_)
                              .status()
                              .message()),
              HasSubstr("left from an earlier run"));
  options_.resume = true;
  EXPECT_EQ(CheckpointWriter::Create(out_, Groups(3), options_).status().code(),
            absl::StatusCode::kFailedPrecondition);
  options_.fingerprint = "source 2";
  EXPECT_THAT(std::string(CheckpointWriter::Create(out_, Groups(4), options_)
                              .status()
                              .message()),
              HasSubstr("another source or other settings"));
  options_.fingerprint = "source 1";
  options_.metadata["format"] = "np";
  EXPECT_EQ(CheckpointWriter::Create(out_, Groups(4), options_).status().code(),
            absl::StatusCode::kFailedPrecondition);
  options_.metadata["format"] = "pt";
  {
    auto writer = CheckpointWriter::Create(out_, Groups(4), options_);
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_EQ(writer->num_finished_shards(), 2);
    EXPECT_EQ(writer->resumed_bytes(), 24);
    EXPECT_TRUE(writer->IsWritten("t1.scale"));
    EXPECT_FALSE(writer->IsWritten("t2.codes"));
    EXPECT_EQ(Append(*writer, "t0.codes", "x").code(),
              absl::StatusCode::kFailedPrecondition);
    // Nobody else may write there.
    EXPECT_EQ(
        CheckpointWriter::Create(out_, Groups(4), options_).status().code(),
        absl::StatusCode::kAborted);
    ASSERT_TRUE(AppendGroup(*writer, 2).ok());
    ASSERT_TRUE(AppendGroup(*writer, 3).ok());
    ASSERT_TRUE(writer->Finish().ok());
  }
  // The same bytes as without the kill.
  CheckpointWriterOptions fresh;
  fresh.max_shard_bytes = 12;
  auto writer = CheckpointWriter::Create(dir_.Path("fresh"), Groups(4), fresh);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(AppendGroup(*writer, i).ok());
  ASSERT_TRUE(writer->Finish().ok());
  ASSERT_EQ(test::NamesIn(out_), test::NamesIn(dir_.Path("fresh")));
  for (const std::string& name : test::NamesIn(out_)) {
    EXPECT_EQ(test::ReadFile(out_ + "/" + name),
              test::ReadFile(dir_.Path("fresh/" + name)));
  }
}

TEST_F(CheckpointWriterTest, FinishedShardThatWasDamagedIsWrittenAgain) {
  options_.max_shard_bytes = 12;
  WriteUntilKilled();
  for (const std::string& name : test::NamesIn(partial_)) {
    if (name.find("model-00001") != 0) continue;
    std::filesystem::resize_file(partial_ + "/" + name, 3);
  }
  options_.resume = true;
  auto writer = CheckpointWriter::Create(out_, Groups(4), options_);
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_EQ(writer->num_finished_shards(), 1);
  EXPECT_FALSE(writer->IsWritten("t0.codes"));
  for (const int i : {0, 2, 3}) ASSERT_TRUE(AppendGroup(*writer, i).ok());
  ASSERT_TRUE(writer->Finish().ok());
  const auto reader = CheckpointReader::Open(out_);
  EXPECT_TRUE(reader.ok()) << reader.status();
}

TEST_F(CheckpointWriterTest, RefusesWhenSpaceIsShortBeforeItStarts) {
  const auto huge = CheckpointWriter::Create(
      out_, {{{"huge", SafetensorsDType::kU8, {int64_t{1} << 50}}}}, options_);
  EXPECT_EQ(huge.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(huge.status().message()),
              AllOf(HasSubstr("needs 11258999068"), HasSubstr("are free")));
  // The next run, of a plan that fits, finds nothing in its way.
  EXPECT_TRUE(CheckpointWriter::Create(out_, Groups(1), options_).ok());
}

TEST_F(CheckpointWriterTest, RefusesWhenASmallDiskIsShort) {
  const std::string disk = dir_.Path("disk");
  std::filesystem::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=65536") != 0) {
    GTEST_SKIP() << "needs the right to mount a tmpfs";
  }
  // Two shards of 40 KB: each would fit, both do not.
  options_.max_shard_bytes = 40000;
  const std::vector<TensorGroup> groups = {
      {{"a", SafetensorsDType::kU8, {40000}}},
      {{"b", SafetensorsDType::kU8, {40000}}}};
  const auto writer = CheckpointWriter::Create(disk + "/out", groups, options_);
  const auto one =
      CheckpointWriter::Create(disk + "/one", {groups[0]}, options_);
  const bool left = std::filesystem::exists(disk + "/out.partial");
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): of this moment
  const absl::Status status = writer.status();
  umount2(disk.c_str(), MNT_DETACH);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(one.ok()) << one.status();
  EXPECT_FALSE(left);
}

}  // namespace
}  // namespace espalier
