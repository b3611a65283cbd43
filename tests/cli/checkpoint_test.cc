// The commands for checkpoint folders, run as a user runs them.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"
#include "espalier/tests/checkpoint/sparse_checkpoint.h"
#include "espalier/tests/cli/command.h"
#include "espalier/tests/support/folder_files.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kIndex[] = "model.safetensors.index.json";

int64_t IntOf(const JsonValue& json, absl::string_view key) {
  const JsonValue* value = json.Find(key);
  return value == nullptr || value->AsInt() == nullptr ? -1 : *value->AsInt();
}

class CheckpointCommandTest : public ::testing::Test {
 protected:
  CheckpointCommandTest() : model_(dir_.Path("model")) {
    const auto written = test::WriteSparseCheckpoint(test::kTinyLlama, model_);
    EXPECT_TRUE(written.ok()) << written.status();
    if (written.ok()) num_tensors_ = written->num_tensors;
  }
  void Edit(const std::string& file, absl::string_view from,
            absl::string_view to) {
    test::ReplaceInFile(dir_.Path(file), from, to);
  }

  test::TempDir dir_;
  const std::string model_;
  int64_t num_tensors_ = 0;
};

TEST_F(CheckpointCommandTest, Inspect) {
  const test::CommandResult text = test::Espalier({"inspect", model_});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("llama: 3 layers"));
  EXPECT_TRUE(test::EspalierJson({"inspect", model_}).AsObject() != nullptr);
}

TEST_F(CheckpointCommandTest, Verify) {
  const JsonValue good = test::EspalierJson({"verify", model_, "--full"});
  EXPECT_EQ(IntOf(good, "tensors"), num_tensors_);
  EXPECT_EQ(test::Espalier({"verify", model_, "--write-manifest"}).exit_code,
            0);
  Edit("model/model-00002-of-000004.safetensors", "up_proj", "op_proj");
  const test::CommandResult bad = test::Espalier({"verify", model_, "--json"});
  EXPECT_EQ(bad.exit_code, 3);
  const auto json = ParseJsonText(bad.out);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_FALSE(*json->Find("ok")->AsBool());
  EXPECT_THAT(test::Espalier({"verify", model_}).out,
              HasSubstr("tensor_not_in_file"));
}

TEST_F(CheckpointCommandTest, VerifyNamesAWrongTotalSize) {
  Edit(absl::StrCat("model/", kIndex), "\"total_size\": ", "\"total_size\": 1");
  const test::CommandResult result = test::Espalier({"verify", model_});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.out, AllOf(HasSubstr("PROBLEM wrong_total_size: 1"),
                                HasSubstr(kIndex)));
}

TEST_F(CheckpointCommandTest, ShardAndBack) {
  const std::string out = dir_.Path("sharded");
  const JsonValue report = test::EspalierJson(
      {"shard", model_, "--out", out, "--tp", "2", "--pp", "3"});
  EXPECT_EQ(IntOf(report, "tensors"), num_tensors_);
  EXPECT_EQ(test::Espalier({"shard", model_, "--out", out}).exit_code, 3);
  const JsonValue back =
      test::EspalierJson({"unshard", out, "--out", dir_.Path("back")});
  EXPECT_EQ(IntOf(back, "tensors"), num_tensors_);
  EXPECT_EQ(test::Contents(model_), test::Contents(dir_.Path("back")));
  EXPECT_EQ(IntOf(test::EspalierJson({"verify", out, "--full"}), "tensors"),
            num_tensors_);
  // What needs a whole checkpoint says what this is.
  const test::CommandResult inspect = test::Espalier({"inspect", out});
  EXPECT_EQ(inspect.exit_code, 3);
  EXPECT_THAT(inspect.err, HasSubstr("espalier unshard"));
  // One bit.
  const std::string shard = "pp00-tp01of02-00001-of-00001.safetensors";
  std::string bytes = test::ReadFile(absl::StrCat(out, "/", shard));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  dir_.Write("sharded/" + shard, bytes);
  const test::CommandResult found = test::Espalier({"verify", out, "--full"});
  EXPECT_EQ(found.exit_code, 3);
  EXPECT_THAT(found.out, AllOf(HasSubstr(shard), HasSubstr("wrong_data")));
  const test::CommandResult bad =
      test::Espalier({"unshard", out, "--out", dir_.Path("bad")});
  EXPECT_EQ(bad.exit_code, 3);
  EXPECT_THAT(bad.err, AllOf(HasSubstr(shard), HasSubstr("data hash "),
                             HasSubstr(", expected ")));
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("bad")));
}

TEST_F(CheckpointCommandTest, SettingsThatDoNotSuitTheModelAreTwo) {
  const std::string new_dir = dir_.Path("new");
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--tp", "3"},
        {"--pp", "4"},
        {"--ep", "2"},
        {"--tp", "0"},
        {"--tp", "70000"},
        {"--max-shard", "0"}}) {
    std::vector<std::string> words = {"shard", model_, "--out", new_dir};
    words.insert(words.end(), flags.begin(), flags.end());
    const test::CommandResult result = test::Espalier(words);
    EXPECT_EQ(result.exit_code, 2) << flags[0] << flags[1] << result.err;
    EXPECT_THAT(result.err, HasSubstr(flags[1] == "3" ? "tp 3 cuts" : flags[0]))
        << flags[1];
  }
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--to", "f64"},
        {"--experts", "mixed"},
        {"--int4-group", "48"},
        {"--to", "fp8", "--only", "nothing*"},
        {"--max-shard", "0"}}) {
    std::vector<std::string> words = {"convert", "--model", model_, "--output",
                                      new_dir};
    words.insert(words.end(), flags.begin(), flags.end());
    const test::CommandResult result = test::Espalier(words);
    EXPECT_EQ(result.exit_code, 2) << flags[0] << flags[1] << result.err;
    EXPECT_THAT(result.err, HasSubstr(flags.back())) << flags[0];
    EXPECT_THAT(result.err, HasSubstr(flags[flags.size() - 2])) << flags[0];
  }
  EXPECT_FALSE(std::filesystem::exists(new_dir));
  EXPECT_FALSE(std::filesystem::exists(new_dir + ".partial"));
}

TEST_F(CheckpointCommandTest, Convert) {
  const std::string f32 = dir_.Path("f32");
  const JsonValue report = test::EspalierJson(
      {"convert", "--model", model_, "--output", f32, "--to", "f32"});
  EXPECT_EQ(IntOf(report, "num_cast"), num_tensors_);
  EXPECT_EQ(test::Espalier({"verify", f32, "--full"}).exit_code, 0);
  const test::CommandResult text = test::Espalier(
      {"convert", "--model", model_, "--output", dir_.Path("copy")});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr(absl::StrCat(num_tensors_, " copied")));
  // Several files: verify holds the index's total_size against them.
  const std::string cut = dir_.Path("cut");
  const JsonValue files = test::EspalierJson(
      {"convert", "--model", model_, "--output", cut, "--max-shard", "5KB"});
  EXPECT_GT(IntOf(files, "num_shards"), 2);
  EXPECT_TRUE(std::filesystem::exists(cut + "/" + kIndex));
  EXPECT_EQ(test::Espalier({"verify", cut, "--full"}).exit_code, 0);
  // A tensor that the config does not have, and one that it misses.
  for (const std::string& file :
       {std::string(kIndex),
        std::string("model-00001-of-000004.safetensors")}) {
    Edit("model/" + file, "layers.0.mlp.up_proj", "layers.0.mlp.op_proj");
  }
  std::vector<std::string> words = {"convert", "--model", model_, "--output",
                                    dir_.Path("new")};
  const test::CommandResult refused = test::Espalier(words);
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("mlp.op_proj"), HasSubstr("mlp.up_proj")));
  words.emplace_back("--allow-mismatch");
  const test::CommandResult allowed = test::Espalier(words);
  EXPECT_EQ(allowed.exit_code, 0) << allowed.err;
  EXPECT_THAT(allowed.out, AllOf(HasSubstr("note: 1 unexpected_tensor"),
                                 HasSubstr("note: 1 missing_tensor")));
}

// Case F10: what is no weight is copied byte for byte, whatever is in it.
TEST_F(CheckpointCommandTest, OtherFilesAreCopiedByteForByte) {
  const std::map<std::string, std::string> others = {
      {"generation_config.json", "{ \"eos_token_id\" : 2.50 }"},
      {"tokenizer.json", "\xef\xbb\xbf{\r\n\t\"a\": 1}\r\n\r\n"},
      {"tokenizer.model", std::string("\0\1\2\xff\n\0", 6)},
      {"tokenizer_config.json", "{\"not\": [valid"},
      {"chat_template.jinja", "{{ messages }}   \n\n  "},
      {"special_tokens_map.json", ""},
      {"merges.txt", std::string(3'000'001, 'x')},
      {"README.md", "# \xc3\x28 no UTF-8"}};
  for (const auto& [name, bytes] : others) {
    dir_.Write(absl::StrCat("model/", name), bytes);
  }
  const std::string out = dir_.Path("out");
  const JsonValue report =
      test::EspalierJson({"convert", "--model", model_, "--output", out, "--to",
                          "f32", "--max-shard", "8KB"});
  EXPECT_GT(IntOf(report, "num_shards"), 1);
  const auto written = test::Contents(out);
  for (const auto& [name, bytes] : others) {
    ASSERT_EQ(written.count(name), 1u) << name;
    EXPECT_TRUE(written.at(name) == bytes) << name;
  }
  // Those, config.json, the index and the shards.
  EXPECT_EQ(
      written.size(),
      others.size() + 2 + static_cast<size_t>(IntOf(report, "num_shards")));
  const auto index = ParseJsonText(written.at(kIndex));
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(IntOf(*index->Find("metadata"), "total_size"),
            IntOf(report, "bytes"));
  EXPECT_EQ(static_cast<int64_t>(index->Find("weight_map")->AsObject()->size()),
            num_tensors_);
}

// A copy inside the source would be a part of what is copied.
TEST_F(CheckpointCommandTest, NothingIsWrittenIntoTheSource) {
  const std::string sharded = dir_.Path("sharded");
  ASSERT_EQ(test::Espalier({"shard", model_, "--out", sharded}).exit_code, 0);
  std::filesystem::create_directory_symlink(model_, dir_.Path("link"));
  std::filesystem::create_directory_symlink(sharded, dir_.Path("link2"));
  const auto model = test::Contents(model_);
  const auto pieces = test::Contents(sharded);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"shard", model_, "--out", model_ + "/new"},
        {"shard", model_, "--out", dir_.Path("link/new")},
        {"shard", model_, "--out", model_ + "/new", "--dry-run"},
        {"shard", dir_.Path("link"), "--out", model_ + "/a/new"},
        {"convert", "--model", model_, "--output", model_ + "/new"},
        {"convert", "--model", model_, "--output", dir_.Path("link/new")},
        {"unshard", sharded, "--out", sharded + "/new"},
        {"unshard", sharded, "--out", dir_.Path("link2/new")}}) {
    const test::CommandResult result = test::Espalier(words);
    EXPECT_EQ(result.exit_code, 3) << words[0] << result.err;
    EXPECT_THAT(result.err, HasSubstr("lies in the source")) << words[0];
  }
  EXPECT_EQ(test::Contents(model_), model);
  EXPECT_EQ(test::Contents(sharded), pieces);
  EXPECT_FALSE(std::filesystem::exists(model_ + "/a"));
}

TEST_F(CheckpointCommandTest, ShortOfSpaceIsFour) {
  const std::string wide = dir_.Path("wide");
  const auto written = test::WriteSparseCheckpoint(
      absl::StrReplaceAll(test::kTinyLlama,
                          {{"\"vocab_size\":24", "\"vocab_size\":40000000"},
                           {"\"hidden_size\":24", "\"hidden_size\":65536"}}),
      wide);
  if (absl::IsUnavailable(written.status())) GTEST_SKIP() << written.status();
  ASSERT_TRUE(written.ok()) << written.status();
  const std::string new_dir = dir_.Path("new");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"shard", wide, "--out", new_dir},
        {"convert", "--model", wide, "--output", new_dir}}) {
    const test::CommandResult result = test::Espalier(words);
    EXPECT_EQ(result.exit_code, 4) << words[0] << result.err;
    EXPECT_THAT(result.err, HasSubstr("needs 5")) << words[0];
    EXPECT_FALSE(std::filesystem::exists(new_dir)) << words[0];
    EXPECT_FALSE(std::filesystem::exists(new_dir + ".partial")) << words[0];
  }
}

// Case F5: 1,200 shards of 1 MB under limits of handles and address space. The
// space is less than the model; only a part of it is ever in memory.
TEST_F(CheckpointCommandTest, ManyShardsUnderLimits) {
#if defined(ESPALIER_ASAN) || defined(ESPALIER_TSAN)
  GTEST_SKIP() << "sanitizers reserve address space of their own";
#endif
  const std::string many = dir_.Path("many");
  const auto written = test::WriteSparseCheckpoint(
      R"({"model_type":"llama","vocab_size":2500,"hidden_size":200,
          "num_hidden_layers":1199,"num_attention_heads":4,
          "num_key_value_heads":4,"head_dim":50,"intermediate_size":600,
          "tie_word_embeddings":true})",
      many);
  ASSERT_TRUE(written.ok()) << written.status();
  ASSERT_GE(written->num_files, 1200);
  ASSERT_GT(written->total_bytes, int64_t{1'200'000'000});
  test::CommandOptions options;
  options.limits = "ulimit -n 64 && ulimit -v 1000000";  // KB
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"inspect", many},
        {"verify", many, "--full"}}) {
    const test::CommandResult result = test::Espalier(words, options);
    EXPECT_EQ(result.exit_code, 0) << words[0] << ": " << result.err;
  }
}

}  // namespace
}  // namespace espalier
