#include "espalier/io/internal/verify_sharded.h"

#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"
#include "espalier/io/shard.h"
#include "espalier/tests/checkpoint/sparse_checkpoint.h"

namespace espalier::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kPiece[] = "pp01-tp01of02-00001-of-00001.safetensors";
constexpr char kHeader[] =
    "espalier-original/model-00002-of-000004.safetensors.header";

class VerifyShardedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto written =
        test::WriteSparseCheckpoint(test::kTinyLlama, dir_.Path("model"));
    ASSERT_TRUE(written.ok()) << written.status();
    dir_.Write("model/tokenizer.json", "{}");
    ShardOptions options;
    options.mesh = {2, 1, 3, 1};
    const auto sharded =
        ShardCheckpoint(dir_.Path("model"), dir_.Path("out"), options);
    ASSERT_TRUE(sharded.ok()) << sharded.status();
    num_tensors_ = sharded->num_tensors;
    total_bytes_ = sharded->total_bytes;
  }
  std::string Read(const std::string& name) {
    return test::ReadFile(dir_.Path(absl::StrCat("out/", name)));
  }
  void Write(const std::string& name, absl::string_view bytes) {
    dir_.Write(absl::StrCat("out/", name), bytes);
  }
  VerifyReport Verify(bool full) {
    VerifyOptions options;
    options.full = full;
    const auto report = VerifyCheckpoint(dir_.Path("out"), options);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : VerifyReport();
  }
  // Kind and first message of the only problem; the file is put back.
  std::string Problem(const std::string& name, absl::string_view bytes,
                      bool full) {
    const std::string before = Read(name);
    Write(name, bytes);
    const VerifyReport report = Verify(full);
    Write(name, before);
    if (report.problems.total() != 1) {
      return absl::StrCat(report.problems.total(), " problems");
    }
    const ProblemList::Kind& kind = report.problems.kinds()[0];
    return absl::StrCat(kind.name, ": ", kind.first[0]);
  }
  static std::string Flipped(std::string bytes, size_t at) {
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    return bytes;
  }

  test::TempDir dir_;
  int64_t num_tensors_ = 0;
  int64_t total_bytes_ = 0;
};

TEST_F(VerifyShardedTest, AWholeFolderIsInOrder) {
  for (const bool full : {false, true}) {
    const VerifyReport report = Verify(full);
    EXPECT_TRUE(report.ok()) << ToText(report);
    EXPECT_EQ(report.family, "llama");
    EXPECT_EQ(report.num_files, 11);  // 2 of all, 3 of stages, 3 x 2
    EXPECT_EQ(report.num_tensors, num_tensors_);
    EXPECT_EQ(report.num_matched, num_tensors_);
    EXPECT_EQ(report.total_bytes, total_bytes_);
    EXPECT_EQ(report.read_all, full);
    EXPECT_EQ(report.sharded, dir_.Path("out/espalier-shards.json"));
    EXPECT_THAT(ToText(report),
                HasSubstr(full ? "every byte was compared" : "--full"));
  }
}

TEST_F(VerifyShardedTest, NamesTheFileThatChanged) {
  const std::string piece = Read(kPiece);
  const std::string flipped = Flipped(piece, piece.size() - 1);
  EXPECT_THAT(Problem(kPiece, flipped, true),
              AllOf(HasSubstr("wrong_data: "), HasSubstr(kPiece),
                    HasSubstr("data hash")));
  // Only reading tells.
  EXPECT_EQ(Problem(kPiece, flipped, false), "0 problems");
  for (const bool full : {false, true}) {
    EXPECT_THAT(Problem(kPiece, Flipped(piece, 30), full),
                AllOf(HasSubstr("bad_file: "), HasSubstr(kPiece)));
    EXPECT_THAT(Problem(kPiece, piece.substr(0, piece.size() - 2), full),
                AllOf(HasSubstr("bad_file: "), HasSubstr(kPiece)));
    EXPECT_THAT(Problem(kHeader, Flipped(Read(kHeader), 40), full),
                AllOf(HasSubstr("bad_original: "), HasSubstr(kHeader)));
    EXPECT_THAT(
        Problem("espalier-original/model.safetensors.index.json", "{}", full),
        HasSubstr("bad_original: "));
    EXPECT_THAT(Problem("tokenizer.json", "{ }", full),
                AllOf(HasSubstr("bad_copy: "), HasSubstr("tokenizer.json")));
    EXPECT_THAT(Problem("espalier-shards.json", "{}", full),
                HasSubstr("bad_layout: "));
  }
  EXPECT_THAT(Problem("tokenizer.json", "[]", true), HasSubstr("bad_copy: "));
  EXPECT_EQ(Problem("tokenizer.json", "[]", false), "0 problems");
  std::filesystem::remove(dir_.Path(absl::StrCat("out/", kPiece)));
  EXPECT_EQ(Verify(false).problems.total(), 1);
}

// A list that agrees with the files, but not with the model.
TEST_F(VerifyShardedTest, EveryPieceIsLookedFor) {
  const std::string shards = Read("espalier-shards.json");
  const auto without = [&](absl::string_view from, absl::string_view to) {
    const std::string changed = absl::StrReplaceAll(shards, {{from, to}});
    EXPECT_NE(changed, shards);
    Write("espalier-shards.json", changed);
    const VerifyReport report = Verify(/*full=*/true);
    Write("espalier-shards.json", shards);
    return ToText(report);
  };
  // All files of stage 1 as if they were of a stage 7.
  EXPECT_THAT(without("\"pp\": 1", "\"pp\": 7"),
              AllOf(HasSubstr("PROBLEM missing_piece"),
                    HasSubstr("no file of group pp01")));
  EXPECT_THAT(without("\"pp\": 3", "\"pp\": 1"), HasSubstr("PROBLEM "));
  // One weight file of the original less: its pieces belong nowhere.
  const size_t begin = shards.find('{', shards.find("\"sources\"", 0));
  const size_t end = shards.find('{', begin + 1);
  Write("espalier-shards.json",
        absl::StrCat(shards.substr(0, begin), shards.substr(end)));
  EXPECT_THAT(ToText(Verify(/*full=*/false)),
              AllOf(HasSubstr("PROBLEM unknown_piece: 1"),
                    HasSubstr("belongs to no file of the original")));
}

TEST_F(VerifyShardedTest, NotesFilesThatAreNotOfTheFolder) {
  Write("more.safetensors", "x");
  const VerifyReport report = Verify(/*full=*/true);
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(ToText(report),
              AllOf(HasSubstr("note ignored_file"), HasSubstr("more.safe")));
}

TEST_F(VerifyShardedTest, HasNoManifest) {
  VerifyOptions options;
  options.write_manifest = dir_.Path("m.json");
  const auto report = VerifyCheckpoint(dir_.Path("out"), options);
  EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(report.status().message(), HasSubstr("is sharded"));
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("m.json")));
}

}  // namespace
}  // namespace espalier::internal
