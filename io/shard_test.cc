#include "espalier/io/shard.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"
#include "espalier/io/safetensors_reader.h"
#include "espalier/tests/checkpoint/sparse_checkpoint.h"
#include "espalier/tests/support/folder_files.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// kTinyLlama with more keys: ",key:value".
std::string Llama(absl::string_view more = "") {
  absl::string_view config = test::kTinyLlama;
  config.remove_suffix(1);
  return absl::StrCat(config, more, "}");
}

std::string Config(absl::string_view name) {
  return test::ReadFile(absl::StrCat(
      ESPALIER_SOURCE_DIR, "/tests/fixtures/configs/", name, ".json"));
}

std::string BytesOf(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsEntry& entry = *file.Find(name);
  return test::ReadFile(file.path())
      .substr(static_cast<size_t>(file.data_start() + entry.begin),
              static_cast<size_t>(entry.num_bytes()));
}

// Names of files that only one folder has, or that differ.
std::string Difference(const std::string& a, const std::string& b) {
  std::map<std::string, std::string> left = test::Contents(a);
  std::string names;
  for (const auto& [name, bytes] : test::Contents(b)) {
    const auto found = left.find(name);
    if (found == left.end() || found->second != bytes) names += name + " ";
    if (found != left.end()) left.erase(found);
  }
  for (const auto& [name, bytes] : left) names += name + " ";
  return names;
}

class ShardTest : public ::testing::Test {
 protected:
  // A whole checkpoint with data that differ everywhere.
  void Write(absl::string_view config) {
    std::filesystem::remove_all(In());
    const auto written = test::WriteSparseCheckpoint(config, In());
    ASSERT_TRUE(written.ok()) << written.status();
    uint32_t state = 1;
    for (const auto& [name, bytes] : test::Contents(In())) {
      if (!absl::EndsWith(name, ".safetensors")) continue;
      const auto file = SafetensorsFile::Open(In() + "/" + name);
      ASSERT_TRUE(file.ok());
      std::string filled = bytes;
      for (size_t i = static_cast<size_t>(file->data_start());
           i < filled.size(); ++i) {
        state = state * 1664525u + 1013904223u;
        filled[i] = static_cast<char>(state >> 24);
      }
      dir_.Write("in/" + name, filled);
    }
    std::filesystem::create_directories(In() + "/extra/deep");
    dir_.Write("in/tokenizer.json", "{\"not\": \"looked at\"}");
    dir_.Write("in/extra/deep/notes.txt", "notes");
    dir_.Write("in/.gitattributes", "x");
    dir_.Write("in/empty", "");
  }
  std::string In() const { return dir_.Path("in"); }
  std::string Out() const { return dir_.Path("out"); }
  std::string Back() const { return dir_.Path("back"); }

  absl::Status Shard(const ShardMesh& mesh, int64_t max_shard = 1 << 30) {
    ShardOptions options;
    options.mesh = mesh;
    options.max_shard_bytes = max_shard;
    return ShardCheckpoint(In(), Out(), options).status();
  }
  void ExpectRoundTrip(const ShardMesh& mesh, int64_t max_shard) {
    std::filesystem::remove_all(Out());
    std::filesystem::remove_all(Back());
    ASSERT_EQ(Shard(mesh, max_shard), absl::OkStatus());
    ASSERT_EQ(UnshardCheckpoint(Out(), Back(), {}).status(), absl::OkStatus());
    EXPECT_EQ(Difference(In(), Back()), "");
  }
  // Bytes of a tensor of a file of the sharded folder, and of the original.
  std::string Piece(const std::string& group, const std::string& name) {
    const auto file = SafetensorsFile::Open(Out() + "/" + group +
                                            "-00001-of-00001.safetensors");
    EXPECT_TRUE(file.ok()) << file.status();
    if (!file.ok() || file->Find(name) == nullptr) return "";
    return BytesOf(*file, name);
  }
  std::string Whole(const std::string& name) {
    for (const auto& entry : std::filesystem::directory_iterator(In())) {
      if (entry.path().extension() != ".safetensors") continue;
      const auto file = SafetensorsFile::Open(entry.path().string());
      if (!file.ok() || file->Find(name) == nullptr) continue;
      return BytesOf(*file, name);
    }
    return "";
  }

  test::TempDir dir_;
};

TEST_F(ShardTest, RoundTripsByteForByte) {
  Write(Config("tiny_kimi"));
  for (const ShardMesh& mesh : {ShardMesh{1, 1, 1, 1}, ShardMesh{2, 4, 3, 1},
                                ShardMesh{4, 2, 2, 2}, ShardMesh{1, 8, 1, 1}}) {
    ExpectRoundTrip(mesh, 1 << 30);
    ExpectRoundTrip(mesh, 20'000);
  }
  Write(Llama());
  ExpectRoundTrip({4, 1, 3, 1}, 1000);
}

TEST_F(ShardTest, PiecesAreWhatTheirRanksCompute) {
  Write(Config("tiny_kimi"));
  ASSERT_EQ(Shard({2, 4, 3, 1}), absl::OkStatus());
  const std::string layer = "language_model.model.layers.3.";
  // Rows of heads 2 and 3: the second half. 4 heads of 8, hidden 64.
  const std::string q = Whole(layer + "self_attn.kv_b_proj.weight");
  ASSERT_EQ(q.size(), 4u * 16 * 16 * 2);
  EXPECT_EQ(Piece("pp01-tp01of02", layer + "self_attn.kv_b_proj.weight"),
            q.substr(q.size() / 2));
  // Columns of heads 0 and 1.
  const std::string o = Whole(layer + "self_attn.o_proj.weight");
  std::string left;
  for (size_t row = 0; row < 64; ++row) left += o.substr(row * 64, 32);
  EXPECT_EQ(Piece("pp01-tp00of02", layer + "self_attn.o_proj.weight"), left);
  // Experts 4 and 5 of 8, whole, with their scales.
  const std::string w2 = layer + "block_sparse_moe.experts.5.w2.weight_scale";
  EXPECT_EQ(Piece("pp01-ep02", w2), Whole(w2));
  // What all ranks of a stage read.
  const std::string norm = layer + "input_layernorm.weight";
  EXPECT_EQ(Piece("pp01", norm), Whole(norm));
  // Stages begin at multiples of 2 layers; the head is on the last.
  EXPECT_NE(Piece("pp02-tp00of02", "language_model.lm_head.weight"), "");
  EXPECT_NE(Piece("pp00-tp01of02", "language_model.model.embed_tokens.weight"),
            "");
}

TEST_F(ShardTest, FewKeyHeadsAreSharedByRanks) {
  Write(Llama());
  ASSERT_EQ(Shard({4, 1, 3, 1}), absl::OkStatus());
  const std::string k = "model.layers.1.self_attn.k_proj.weight";
  const std::string whole = Whole(k);
  EXPECT_EQ(Piece("pp01-tp01of02", k), whole.substr(whole.size() / 2));
  const std::string q = "model.layers.1.self_attn.q_proj.weight";
  EXPECT_EQ(Piece("pp01-tp03of04", q), Whole(q).substr(size_t{24} * 24 * 2));
  // Tied: the first and the last stage read it.
  EXPECT_NE(Piece("tp00of04", "model.embed_tokens.weight"), "");
}

TEST_F(ShardTest, CutsStackedExpertsAndPackedGroups) {
  const std::string head = R"({"model_type":"gpt_oss","vocab_size":16,
      "hidden_size":64,"intermediate_size":64,"num_hidden_layers":2,
      "num_attention_heads":2,"num_key_value_heads":2,"head_dim":8,
      "num_local_experts":4)";
  Write(head + R"(,"quantization_config":{"quant_method":"mxfp4"}})");
  ExpectRoundTrip({2, 2, 2, 2}, 1 << 30);
  const std::string up = "model.layers.1.mlp.experts.gate_up_proj_blocks";
  const std::string whole = Whole(up);  // [4, 128, 2, 16]
  std::string piece;                    // experts 2 and 3, rows 64 to 127
  for (const size_t e : {2, 3}) {
    piece += whole.substr((e * 128 + 64) * 32, size_t{64} * 32);
  }
  EXPECT_EQ(Piece("pp01-ep01-etp01", up), piece);
  const std::string down = "model.layers.1.mlp.experts.down_proj_scales";
  const std::string scales = Whole(down);  // [4, 64, 2]
  piece.clear();
  for (size_t row = 0; row < size_t{2} * 64; ++row)
    piece += scales[row * 2 + 1];
  EXPECT_EQ(Piece("pp01-ep00-etp01", down), piece);
  EXPECT_EQ(Shard({1, 1, 1, 1}).code(), absl::StatusCode::kAlreadyExists);
  std::filesystem::remove_all(Out());
  const absl::Status four = Shard({1, 1, 1, 4});
  EXPECT_EQ(four.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(four.message(),
              AllOf(HasSubstr("down_proj_blocks"), HasSubstr("etp 4"),
                    HasSubstr("element 16, inside a group of 32")));
  EXPECT_FALSE(std::filesystem::exists(Out() + ".partial"));
}

TEST_F(ShardTest, RefusesAMeshThatDoesNotSuit) {
  Write(Llama());
  const auto refusal = [&](const ShardMesh& mesh) {
    const absl::Status status = Shard(mesh);
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal({0, 1, 1, 1}), HasSubstr("tp is 0"));
  EXPECT_THAT(refusal({1, 2, 1, 1}), HasSubstr("ep is 2, expected 1 to 1"));
  EXPECT_THAT(refusal({1, 1, 4, 1}), HasSubstr("pp is 4, expected 1 to 3"));
  EXPECT_THAT(refusal({3, 1, 1, 1}),
              AllOf(HasSubstr("self_attn.q_proj.weight"), HasSubstr("tp 3")));
  // Rows of 40 in blocks of 128.
  Write(Llama(R"(,"quantization_config":{"quant_method":"fp8"})"));
  EXPECT_THAT(refusal({2, 1, 1, 1}), HasSubstr("inside a group of 128"));
  dir_.Write("in/config.json", R"({"model_type":"bloom"})");
  EXPECT_EQ(Shard({}).code(), absl::StatusCode::kUnimplemented);
  dir_.Write("in/config.json",
             absl::StrReplaceAll(Llama(), {{"\"intermediate_size\":40",
                                            "\"intermediate_size\":48"}}));
  EXPECT_THAT(Shard({}).message(), HasSubstr("wrong_"));
}

TEST_F(ShardTest, CutsInt4ByWholeGroups) {
  Write(absl::StrReplaceAll(
      Llama(R"(,"quantization_config":{
        "quant_method":"compressed-tensors","format":"pack-quantized",
        "config_groups":{"g":{"targets":["Linear"],
        "weights":{"num_bits":4,"group_size":32}}}})"),
      {{"\"intermediate_size\":40", "\"intermediate_size\":128"},
       {"\"hidden_size\":24", "\"hidden_size\":64"}}));
  ExpectRoundTrip({1, 1, 2, 1}, 1 << 30);
}

// Holes may be larger than the disk; their copies could not be.
TEST_F(ShardTest, NoSpaceIsFoundBeforeTheStart) {
  constexpr char kWide[] = R"({"model_type":"llama","vocab_size":40000000,
      "hidden_size":65536,"num_hidden_layers":1,"num_attention_heads":2,
      "intermediate_size":8,"tie_word_embeddings":true})";
  const auto written = test::WriteSparseCheckpoint(kWide, In());
  if (absl::IsUnavailable(written.status())) {
    GTEST_SKIP() << written.status();
  }
  ASSERT_TRUE(written.ok()) << written.status();
  const absl::Status status = Shard({2, 1, 1, 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("needs 52"), HasSubstr("are free")));
  EXPECT_FALSE(std::filesystem::exists(Out()));
  EXPECT_FALSE(std::filesystem::exists(Out() + ".partial"));
}

// Data of the same sizes and names make another checkpoint all the same.
TEST_F(ShardTest, ResumeRefusesASourceWhoseDataChanged) {
  Write(Llama());
  ShardOptions options;
  options.mesh = {2, 1, 3, 1};
  const auto run_one_file = [&](const auto& run) {
    options.resume = false;
    options.on_file = [](int64_t, int64_t) {
      return absl::CancelledError("stop");
    };
    EXPECT_TRUE(absl::IsCancelled(run().status()));
    options.on_file = nullptr;
    options.resume = true;
  };
  const auto shard = [&] { return ShardCheckpoint(In(), Out(), options); };
  const auto unshard = [&] {
    return UnshardCheckpoint(Out(), Back(), options);
  };
  std::string changed;  // one byte of the last weight file, a second later
  const auto change = [&] {
    for (const auto& [name, bytes] : test::Contents(In())) {
      if (absl::EndsWith(name, ".safetensors")) changed = "in/" + name;
    }
    std::string bytes = test::ReadFile(dir_.Path(changed));
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    const auto time = std::filesystem::last_write_time(dir_.Path(changed));
    dir_.Write(changed, bytes);
    std::filesystem::last_write_time(dir_.Path(changed),
                                     time + std::chrono::seconds(1));
  };
  run_one_file(shard);
  change();
  const absl::Status refused = shard().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("another source"));
  EXPECT_FALSE(std::filesystem::exists(Out()));

  std::filesystem::remove_all(Out() + ".partial");
  options.resume = false;
  ASSERT_EQ(shard().status(), absl::OkStatus());
  run_one_file(unshard);
  change();
  std::filesystem::remove_all(Out());
  ASSERT_EQ(shard().status(), absl::OkStatus());
  EXPECT_EQ(unshard().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(std::filesystem::exists(Back()));
}

// A kill while the plan is written leaves a temporary file and no plan.
TEST_F(ShardTest, ResumeWithoutAPlanLeavesNoTemporaryFiles) {
  Write(Llama());
  ASSERT_EQ(Shard({}), absl::OkStatus());
  std::filesystem::rename(Out(), dir_.Path("fresh"));
  std::filesystem::create_directory(Out() + ".partial");
  dir_.Write("out.partial/..plan.json.tmp-1-0", "{");
  ShardOptions options;
  options.max_shard_bytes = 1 << 30;
  options.resume = true;
  ASSERT_EQ(ShardCheckpoint(In(), Out(), options).status(), absl::OkStatus());
  EXPECT_EQ(Difference(dir_.Path("fresh"), Out()), "");
}

// A child that is killed after its n-th file, again and again, leaves what the
// next one takes up.
TEST_F(ShardTest, ResumesAfterAKillAtEveryStep) {
  Write(Config("tiny_kimi"));
  const auto kill_after =
      [](int64_t steps, ShardOptions options,
         const std::function<absl::Status(const ShardOptions&)>& run) {
        const pid_t child = fork();
        if (child == 0) {
          int64_t done = 0;
          options.on_file = [&](int64_t, int64_t) {
            if (++done == steps) raise(SIGKILL);
            return absl::OkStatus();
          };
          _exit(run(options).ok() ? 0 : 1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        return status;
      };
  ShardOptions options;
  options.mesh = {2, 2, 2, 1};
  options.max_shard_bytes = 40'000;
  const auto shard = [&](const ShardOptions& o) {
    return ShardCheckpoint(In(), Out(), o).status();
  };
  const auto unshard = [&](const ShardOptions& o) {
    return UnshardCheckpoint(Out(), Back(), o).status();
  };
  int kills = 0;
  int status = -1;
  for (; status != 0 && kills < 200; ++kills) {
    status = kill_after(1, options, shard);
    EXPECT_TRUE(status == 0 || WIFSIGNALED(status)) << status;
    EXPECT_EQ(std::filesystem::exists(Out()), status == 0);
    if (kills == 2) {
      ShardOptions other = options;
      other.resume = false;
      EXPECT_EQ(shard(other).code(), absl::StatusCode::kAlreadyExists);
      other.resume = true;
      other.mesh.tp = 1;
      EXPECT_EQ(shard(other).code(), absl::StatusCode::kFailedPrecondition);
    }
    if (kills == 5 && status != 0) {
      // Finished files that were damaged since are written again.
      int damaged = 0;
      for (const auto& entry :
           std::filesystem::directory_iterator(Out() + ".partial")) {
        const std::string name = entry.path().filename().string();
        if (!absl::EndsWith(name, ".safetensors") || damaged == 2) continue;
        std::filesystem::resize_file(
            entry.path(), damaged++ == 0 ? 0 : entry.file_size() + 1);
      }
      EXPECT_EQ(damaged, 2);
    }
    options.resume = true;
  }
  ASSERT_EQ(status, 0);
  EXPECT_GT(kills, 10);
  options.resume = false;
  status = -1;
  for (kills = 0; status != 0 && kills < 200; ++kills) {
    status = kill_after(kills + 1, options, unshard);
    EXPECT_EQ(std::filesystem::exists(Back()), status == 0);
    options.resume = true;
  }
  ASSERT_EQ(status, 0);
  EXPECT_GT(kills, 3);
  EXPECT_EQ(Difference(In(), Back()), "");
}

TEST_F(ShardTest, UnshardNoticesWhatChanged) {
  Write(Config("tiny_kimi"));
  ASSERT_EQ(Shard({2, 2, 1, 1}), absl::OkStatus());
  const auto refusal = [&](const std::string& file, absl::string_view bytes) {
    std::filesystem::remove_all(Back() + ".partial");
    const std::string path = Out() + "/" + file;
    const std::string old = test::ReadFile(path);
    dir_.Write("out/" + file, bytes);
    ShardOptions options;
    options.resume = true;
    const absl::Status status =
        UnshardCheckpoint(Out(), Back(), options).status();
    dir_.Write("out/" + file, old);
    EXPECT_FALSE(std::filesystem::exists(Back()));
    return std::string(status.message());
  };
  EXPECT_THAT(refusal("tokenizer.json", "{\"not\": \"looked  t\"}"),
              HasSubstr("tokenizer.json: hash"));
  EXPECT_THAT(
      refusal("espalier-original/model-00003-of-000008.safetensors.header",
              "x"),
      HasSubstr(".header: hash"));
  EXPECT_THAT(refusal("espalier-shards.json", "{}"), HasSubstr("format"));
  const std::string shards = test::ReadFile(Out() + "/espalier-shards.json");
  EXPECT_THAT(
      refusal("espalier-shards.json",
              absl::StrReplaceAll(shards, {{"\"name\": \"config.json\"",
                                            "\"name\": \"../c.json\""}})),
      HasSubstr("no name in this folder"));
  const std::string one = "pp00-ep01-00001-of-00001.safetensors";
  EXPECT_THAT(refusal(one, "12345678"), HasSubstr(one));
  EXPECT_THAT(
      refusal(one, absl::StrReplaceAll(test::ReadFile(Out() + "/" + one),
                                       {{"experts.7.w2", "experts.9.w2"}})),
      AllOf(HasSubstr(one), HasSubstr("header hash")));
  EXPECT_THAT(refusal("espalier-original/model.safetensors.index.json", "{}"),
              AllOf(HasSubstr("index.json: hash"), HasSubstr("expected")));
  std::filesystem::rename(Out() + "/espalier-original", dir_.Path("aside"));
  ShardOptions none;
  EXPECT_THAT(UnshardCheckpoint(Out(), Back(), none).status().message(),
              HasSubstr("espalier-original"));
  std::filesystem::rename(dir_.Path("aside"), Out() + "/espalier-original");
  ShardOptions options;
  options.resume = true;
  std::filesystem::remove_all(Back() + ".partial");
  EXPECT_EQ(UnshardCheckpoint(Out(), Back(), options).status(),
            absl::OkStatus());
  EXPECT_EQ(Difference(In(), Back()), "");
}

// Any byte of any weight file: of the header or of the data.
TEST_F(ShardTest, UnshardFindsOneFlippedBit) {
  Write(Llama());
  ASSERT_EQ(Shard({4, 1, 3, 1}, 4000), absl::OkStatus());
  int num_flips = 0;
  for (const auto& [name, bytes] : test::Contents(Out())) {
    if (!absl::EndsWith(name, ".safetensors")) continue;
    for (const size_t at : {size_t{9}, bytes.size() / 2, bytes.size() - 1}) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ 16);
      dir_.Write("out/" + name, flipped);
      const absl::Status status = UnshardCheckpoint(Out(), Back(), {}).status();
      EXPECT_THAT(std::string(status.message()), HasSubstr(name)) << at;
      if (at + 1 == bytes.size()) {
        EXPECT_THAT(status.message(),
                    AllOf(HasSubstr(" hash "), HasSubstr(", expected ")));
      }
      EXPECT_FALSE(std::filesystem::exists(Back()));
      std::filesystem::remove_all(Back() + ".partial");
      ++num_flips;
    }
    dir_.Write("out/" + name, bytes);
  }
  EXPECT_GT(num_flips, 30);
  EXPECT_EQ(UnshardCheckpoint(Out(), Back(), {}).status(), absl::OkStatus());
  EXPECT_EQ(Difference(In(), Back()), "");
}

// A run that met wrong data is taken up after the shard was mended; a file that
// changed in OUT.partial is written again.
TEST_F(ShardTest, UnshardTakesUpOnlyWhatIsRight) {
  Write(Llama());
  ASSERT_EQ(Shard({2, 1, 3, 1}), absl::OkStatus());
  const std::string shard = "out/pp01-tp00of02-00001-of-00001.safetensors";
  const std::string good = test::ReadFile(dir_.Path(shard));
  std::string bad = good;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  dir_.Write(shard, bad);
  ShardOptions options;
  options.resume = true;
  EXPECT_THAT(UnshardCheckpoint(Out(), Back(), options).status().message(),
              HasSubstr("data hash"));
  dir_.Write(shard, good);
  options.on_file = [files = 0](int64_t, int64_t) mutable {
    return ++files < 2 ? absl::OkStatus() : absl::CancelledError("stop");
  };
  EXPECT_TRUE(
      absl::IsCancelled(UnshardCheckpoint(Out(), Back(), options).status()));
  const std::string first = "back.partial/model-00001-of-000004.safetensors";
  std::string damaged = test::ReadFile(dir_.Path(first));
  ASSERT_FALSE(damaged.empty());
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  dir_.Write(first, damaged);
  options.on_file = nullptr;
  const auto report = UnshardCheckpoint(Out(), Back(), options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->num_taken_up, 1);
  EXPECT_EQ(Difference(In(), Back()), "");
}

TEST_F(ShardTest, UnshardRefusesSizesThatLie) {
  Write(Config("tiny_kimi"));
  ASSERT_EQ(Shard({2, 2, 1, 1}), absl::OkStatus());
  const std::string path = Out() + "/espalier-shards.json";
  const std::string shards = test::ReadFile(path);
  // Adds one to each number with this key, one after the other.
  int num_lies = 0;
  for (const std::string key :
       {"bytes", "header_bytes", "tensors", "data_bytes"}) {
    const std::string start = absl::StrCat("\"", key, "\": ");
    for (size_t at = shards.find(start); at != std::string::npos;
         at = shards.find(start, at + 1)) {
      const size_t digits = at + start.size();
      const size_t end = shards.find_first_not_of("0123456789", digits);
      const int64_t value = std::stoll(shards.substr(digits, end - digits));
      for (const int64_t lie : {value + 1, int64_t{1} << 49, int64_t{-1}}) {
        dir_.Write(
            "out/espalier-shards.json",
            absl::StrCat(shards.substr(0, digits), lie, shards.substr(end)));
        const absl::Status status =
            UnshardCheckpoint(Out(), Back(), {}).status();
        EXPECT_TRUE(absl::IsDataLoss(status) || absl::IsInvalidArgument(status))
            << key << " " << value << " as " << lie << ": " << status;
        EXPECT_FALSE(std::filesystem::exists(Back() + ".partial"));
        ++num_lies;
      }
    }
  }
  EXPECT_GT(num_lies, 60);
}

}  // namespace
}  // namespace espalier
