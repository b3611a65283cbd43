#include "espalier/io/verify.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"
#include "espalier/tests/checkpoint/sparse_checkpoint.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kMoeShard[] = "model-00003-of-000008.safetensors";

std::string Config(absl::string_view name) {
  return test::ReadFile(absl::StrCat(
      ESPALIER_SOURCE_DIR, "/tests/fixtures/configs/", name, ".json"));
}

class VerifyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto written =
        test::WriteSparseCheckpoint(Config("tiny_kimi"), dir_.path());
    ASSERT_TRUE(written.ok()) << written.status();
    ASSERT_EQ(written->num_files, 8);
  }
  VerifyReport Verify(const VerifyOptions& options = {}) {
    auto report = VerifyCheckpoint(dir_.path(), options);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *std::move(report) : VerifyReport();
  }
  // Replaces text of the same length in a file.
  void Edit(const std::string& file, absl::string_view from,
            absl::string_view to) {
    ASSERT_EQ(from.size(), to.size());
    std::string bytes = test::ReadFile(dir_.Path(file));
    ASSERT_TRUE(absl::StrContains(bytes, from)) << from;
    dir_.Write(file, absl::StrReplaceAll(bytes, {{from, to}}));
  }
  void EditBoth(const std::string& file, absl::string_view from,
                absl::string_view to) {
    Edit(file, from, to);
    Edit("model.safetensors.index.json", from, to);
  }
  static std::vector<std::string> Messages(const ProblemList& list,
                                           absl::string_view kind) {
    for (const ProblemList::Kind& k : list.kinds()) {
      if (k.name == kind) return k.first;
    }
    return {};
  }
  static std::vector<std::string> Kinds(const ProblemList& list) {
    std::vector<std::string> names;
    for (const ProblemList::Kind& k : list.kinds()) names.push_back(k.name);
    return names;
  }

  test::TempDir dir_;
};

TEST_F(VerifyTest, AWholeCheckpointIsInOrder) {
  const VerifyReport report = Verify();
  EXPECT_TRUE(report.ok()) << ToText(report);
  EXPECT_THAT(report.notes.kinds(), IsEmpty());
  EXPECT_EQ(report.family, "kimi_k3");
  EXPECT_EQ(report.num_matched, report.num_tensors);
  // 5 + 5*8 + 3*12 + 2*6 + 3 + 4*(8 + 8*6) + vision 18.
  EXPECT_EQ(report.num_tensors, 338);
  EXPECT_THAT(ToText(report), HasSubstr("\nok\n"));
}

TEST_F(VerifyTest, NamesWhatIsMissingAndWhatIsTooMuch) {
  EditBoth(kMoeShard, "layers.1.block_sparse_moe.experts.5.w2.weight_scale",
           "layers.1.block_sparse_moe.experts.5.w2.weight_scal_");
  EditBoth(kMoeShard, "layers.1.mlp_res_norm", "layers.1.mlp_res_nor_");
  const VerifyReport report = Verify();
  EXPECT_THAT(Kinds(report.problems),
              ElementsAre("unexpected_tensor", "missing_tensor"));
  EXPECT_EQ(report.problems.total(), 4);
  EXPECT_THAT(
      Messages(report.problems, "missing_tensor"),
      ElementsAre("\"language_model.model.layers.1.mlp_res_norm.weight\"",
                  "\"language_model.model.layers.1.block_sparse_moe.experts.5."
                  "w2.weight_scale\""));
  EXPECT_THAT(Messages(report.problems, "unexpected_tensor")[0],
              AllOf(HasSubstr("mlp_res_nor_.weight\" BF16 [64]"),
                    HasSubstr(kMoeShard)));
}

TEST_F(VerifyTest, NamesAWrongTotalSize) {
  const std::string index =
      test::ReadFile(dir_.Path("model.safetensors.index.json"));
  const std::string sum = absl::StrCat(Verify().total_bytes);
  const std::string right = absl::StrCat("\"total_size\": ", sum);
  ASSERT_TRUE(absl::StrContains(index, right)) << index.substr(0, 200);
  const auto with = [&](const std::string& metadata) {
    dir_.Write("model.safetensors.index.json",
               absl::StrReplaceAll(index, {{right, metadata}}));
    return Messages(Verify().problems, "wrong_total_size");
  };
  for (const std::string wrong : {"338", "-1", "\"a\"", "null", "1.5",
                                  "18446744073709551615", "[7]", "{}"}) {
    EXPECT_THAT(with(absl::StrCat("\"total_size\": ", wrong)),
                ElementsAre(AllOf(HasSubstr("index.json: metadata.total_size"),
                                  HasSubstr("expected " + sum))))
        << wrong;
  }
  EXPECT_THAT(with("\"total_size\": 338")[0], HasSubstr("is 338,"));
  EXPECT_THAT(with(absl::StrCat("\"total_size\": ", sum, ".0")), IsEmpty());
  EXPECT_THAT(with("\"other\": {\"total_size\": 1}"), IsEmpty());
}

TEST_F(VerifyTest, NamesDTypes) {
  // Equal sizes: only the table can tell.
  Edit(kMoeShard, "w1.weight_packed\":{\"dtype\":\"U8\"",
       "w1.weight_packed\":{\"dtype\":\"I8\"");
  const VerifyReport report = Verify();
  EXPECT_THAT(Kinds(report.problems), ElementsAre("wrong_dtype"));
  EXPECT_EQ(report.problems.CountOf("wrong_dtype"), 8);
  EXPECT_THAT(Messages(report.problems, "wrong_dtype")[0],
              HasSubstr("w1.weight_packed\": I8, expected U8"));
}

TEST_F(VerifyTest, NamesBothShapes) {
  Edit(kMoeShard, "\"shape\":[32,1,4]", "\"shape\":[4,1,32]");
  const VerifyReport report = Verify();
  EXPECT_THAT(Kinds(report.problems), ElementsAre("wrong_shape"));
  EXPECT_EQ(report.problems.CountOf("wrong_shape"), 3);
  EXPECT_THAT(Messages(report.problems, "wrong_shape")[0],
              HasSubstr("q_conv1d.weight\": shape [4, 1, 32], expected "
                        "[32, 1, 4] (model-00003"));
}

TEST_F(VerifyTest, HoldsTheIndexAgainstTheFiles) {
  std::filesystem::remove(dir_.Path("model-00005-of-000008.safetensors"));
  Edit("model.safetensors.index.json",
       "layers.1.mlp_res_norm.weight\": \"model-00003",
       "layers.1.mlp_res_norm.weight\": \"model-00002");
  dir_.Write("old.safetensors", "x");
  const VerifyReport report = Verify();
  EXPECT_THAT(
      Kinds(report.problems),
      ElementsAre("missing_file", "tensor_not_in_file", "missing_tensor"));
  EXPECT_THAT(Messages(report.problems, "tensor_not_in_file"),
              ElementsAre(HasSubstr("mlp_res_norm.weight\" is mapped to "
                                    "model-00002-of-000008.safetensors, which "
                                    "does not hold it; it is in model-00003")));
  EXPECT_EQ(report.problems.CountOf("missing_tensor"), 8 + 6 + 8 + 48);
  EXPECT_EQ(Messages(report.problems, "missing_tensor").size(), 10u);
  EXPECT_THAT(Messages(report.notes, "ignored_file"),
              ElementsAre(HasSubstr("old.safetensors")));
}

TEST_F(VerifyTest, GoesOnBehindABrokenFile) {
  const std::string bytes = test::ReadFile(dir_.Path(kMoeShard));
  dir_.Write(kMoeShard, bytes.substr(0, bytes.size() - 1));
  dir_.Write("model-00004-of-000008.safetensors", "1234567");
  const VerifyReport report = Verify();
  EXPECT_THAT(Messages(report.problems, "bad_file"),
              ElementsAre(HasSubstr("cut short"), HasSubstr("7 bytes")));
}

TEST_F(VerifyTest, ANameTwiceAndAWrongName) {
  Edit("model-00004-of-000008.safetensors", "layers.2.mlp_res_norm",
       "layers.1.mlp_res_norm");
  const VerifyReport report = Verify();
  EXPECT_THAT(
      Kinds(report.problems),
      ElementsAre("duplicate_tensor", "tensor_not_in_file", "missing_tensor"));
}

TEST_F(VerifyTest, MayLackTheVisionTower) {
  EditBoth("model-00008-of-000008.safetensors", "vision_tower", "_ision_tower");
  VerifyReport report = Verify();
  EXPECT_EQ(report.problems.CountOf("unexpected_tensor"), 15);
  EXPECT_EQ(report.problems.CountOf("missing_tensor"), 15);
  EditBoth("model-00008-of-000008.safetensors", "mm_projector", "_m_projector");
  report = Verify();
  EXPECT_THAT(Kinds(report.problems), ElementsAre("unexpected_tensor"));
  EXPECT_THAT(Messages(report.notes, "absent_part"),
              ElementsAre("no vision tensors"));
}

TEST_F(VerifyTest, AFamilyWithoutATableIsANote) {
  dir_.Write("config.json", R"({"model_type":"bloom"})");
  VerifyReport report = Verify();
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.family, "");
  EXPECT_THAT(Messages(report.notes, "family"),
              ElementsAre(HasSubstr("\"bloom\" has no table")));
  dir_.Write("config.json", R"({"model_type":"llama"})");
  EXPECT_THAT(Kinds(Verify().problems), ElementsAre("bad_config"));
  EXPECT_EQ(VerifyCheckpoint(dir_.path() + "/none", {}).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(VerifyTest, ManifestFindsEveryFlippedByte) {
  VerifyOptions write;
  write.write_manifest = dir_.Path(kManifestName);
  EXPECT_EQ(Verify(write).written_manifest, write.write_manifest);
  const std::string first = test::ReadFile(write.write_manifest);
  Verify(write);
  EXPECT_EQ(test::ReadFile(write.write_manifest), first);
  VerifyOptions full;
  full.full = true;
  VerifyReport report = Verify(full);
  EXPECT_TRUE(report.ok()) << ToText(report);
  EXPECT_TRUE(report.read_all);
  EXPECT_EQ(report.manifest, write.write_manifest);

  // A byte of the data: the headers cannot tell.
  const std::string bytes = test::ReadFile(dir_.Path(kMoeShard));
  std::string flipped = bytes;
  flipped[flipped.size() - 100] ^= 1;
  dir_.Write(kMoeShard, flipped);
  EXPECT_TRUE(Verify().ok());
  report = Verify(full);
  EXPECT_THAT(Messages(report.problems, "manifest_content"),
              ElementsAre(AllOf(HasSubstr(kMoeShard), HasSubstr("bytes 0 to"),
                                HasSubstr("from tensor"))));
  dir_.Write(kMoeShard, bytes);

  // Other files are compared at once, and so is a header with another
  // spelling of the same thing.
  Edit("config.json", "\"model_type\": \"kimi_k3\"",
       "\"model_type\" :\"kimi_k3\"");
  EXPECT_THAT(Messages(Verify().problems, "manifest_content"),
              ElementsAre(HasSubstr("config.json")));
  Edit("config.json", "\"model_type\" :\"kimi_k3\"",
       "\"model_type\": \"kimi_k3\"");
  Edit(kMoeShard, "\"format\":\"pt\"", "\"format\":\"tp\"");
  EXPECT_THAT(Messages(Verify().problems, "manifest_header"),
              ElementsAre(HasSubstr(kMoeShard)));
  dir_.Write(kMoeShard, bytes);
  EXPECT_TRUE(Verify().ok());
  std::filesystem::remove(dir_.Path("config.json"));
  EXPECT_THAT(Messages(Verify().problems, "manifest_missing_file"),
              ElementsAre(HasSubstr("config.json")));
}

TEST_F(VerifyTest, RefusesABrokenManifest) {
  VerifyOptions options;
  options.manifest = dir_.Path("m.json");
  const auto message = [&](absl::string_view text) {
    dir_.Write("m.json", text);
    return std::string(
        VerifyCheckpoint(dir_.path(), options).status().message());
  };
  EXPECT_THAT(message("{}"), HasSubstr("format"));
  EXPECT_THAT(message(R"({"format":"x"})"), HasSubstr("espalier-manifest"));
  const std::string head =
      R"({"format":"espalier-manifest","version":1,"block_bytes":)";
  EXPECT_THAT(message(head + "0,\"files\":[]}"), HasSubstr("block_bytes"));
  EXPECT_THAT(message(head + "8,\"files\":[{\"name\":\"../x\","
                             "\"bytes\":8,\"blocks\":[\"\"]}]}"),
              HasSubstr("plain file name"));
  EXPECT_THAT(message(head + "8,\"files\":[{\"name\":\"x\","
                             "\"bytes\":17,\"blocks\":[\"\"]}]}"),
              HasSubstr("expected 3"));
  const std::string file = "{\"name\":\"x\",\"bytes\":8,\"blocks\":[\"\"]}";
  EXPECT_THAT(message(head + "8,\"files\":[" + file + "," + file + "]}"),
              HasSubstr("files[1].name x stands twice"));
  // The sum of two sizes is no size.
  EXPECT_THAT(
      message(head +
              "9223372036854775807,\"files\":[{\"name\":\"y\",\"bytes\":"
              "9223372036854775807,\"blocks\":[\"\"]}," +
              file + "]}"),
      HasSubstr("files[1].bytes and those before it"));
  EXPECT_THAT(message(head + "8,\"files\":[]}"), "");
  EXPECT_EQ(Verify(options).problems.CountOf("manifest_extra_file"), 8);
}

TEST(VerifyTiedTest, EitherNameWillDo) {
  constexpr char kLlama[] = R"({"model_type":"llama","vocab_size":8,
      "hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,
      "intermediate_size":8,"tie_word_embeddings":true})";
  test::TempDir dir;
  ASSERT_TRUE(test::WriteSparseCheckpoint(kLlama, dir.path()).ok());
  auto report = VerifyCheckpoint(dir.path(), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->ok()) << ToText(*report);
  for (const auto& file : std::filesystem::directory_iterator(dir.path())) {
    const std::string bytes = test::ReadFile(file.path().string());
    dir.Write(file.path().filename().string(),
              absl::StrReplaceAll(bytes, {{"model.embed_tokens.weight\":",
                                           "lm_head.weight\":           "}}));
  }
  report = VerifyCheckpoint(dir.path(), {});
  EXPECT_TRUE(report->ok()) << ToText(*report);
  dir.Write("config.json", absl::StrReplaceAll(kLlama, {{"true", "false"}}));
  report = VerifyCheckpoint(dir.path(), {});
  EXPECT_EQ(report->problems.CountOf("missing_tensor"), 1);
}

}  // namespace
}  // namespace espalier
