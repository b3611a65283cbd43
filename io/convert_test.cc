#include "espalier/io/convert.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/convert_plan.h"
#include "espalier/io/internal/test_util.h"
#include "espalier/io/safetensors_writer.h"
#include "espalier/io/weight_reader.h"
#include "espalier/tests/checkpoint/sparse_checkpoint.h"
#include "espalier/tests/support/folder_files.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Named {
  std::string name;
  std::vector<int64_t> shape;
};

class ConvertTest : public ::testing::Test {
 protected:
  // Most folders here hold a few tensors of their family only.
  ConvertTest() { options_.allow_mismatch = true; }
  // A folder of random f32 tensors.
  std::string Write(const std::string& folder,
                    const std::vector<Named>& tensors,
                    absl::string_view config) {
    std::filesystem::create_directory(dir_.Path(folder));
    std::mt19937 random(4);
    std::normal_distribution<float> normal(0, 0.05f);
    std::vector<NamedTensor> written;
    for (const Named& named : tensors) {
      const Shape shape(absl::MakeConstSpan(named.shape));
      std::vector<float> values(static_cast<size_t>(shape.num_elements()));
      for (float& value : values) value = normal(random);
      written.push_back({named.name, Tensor::FromHost<float>(context_->cpu(),
                                                             shape, values)});
    }
    EXPECT_TRUE(
        WriteSafetensors(dir_.Path(absl::StrCat(folder, "/model.safetensors")),
                         written, {{"format", "pt"}})
            .ok());
    dir_.Write(absl::StrCat(folder, "/config.json"), config);
    dir_.Write(absl::StrCat(folder, "/tokenizer.json"), "{ \"a\" :1}");
    return dir_.Path(folder);
  }
  absl::StatusOr<ConvertReport> Convert(const std::string& from,
                                        const std::string& to,
                                        ConvertTarget target,
                                        ExpertTarget experts = {}) {
    options_.to = target;
    options_.experts = experts;
    return ConvertCheckpoint(from, dir_.Path(to), options_);
  }
  static std::vector<float> Values(const std::string& dir,
                                   const std::string& name) {
    auto reader = CheckpointReader::Open(dir);
    EXPECT_TRUE(reader.ok()) << reader.status();
    auto config = QuantizationConfig::ReadFolder(dir);
    EXPECT_TRUE(config.ok()) << config.status();
    const WeightReader weights(*reader, *std::move(config));
    const auto info = weights.Describe(name);
    EXPECT_TRUE(info.ok()) << info.status();
    if (!info.ok()) return {};
    std::vector<float> values(
        static_cast<size_t>(info->rows() * info->columns()));
    const absl::Status s =
        weights.DecodeRows(*info, 0, info->rows(), absl::MakeSpan(values));
    EXPECT_TRUE(s.ok()) << s;
    return values;
  }
  static std::vector<std::string> NamesOf(const std::string& dir) {
    const auto reader = CheckpointReader::Open(dir);
    EXPECT_TRUE(reader.ok()) << reader.status();
    const std::vector<absl::string_view> names = reader->names();
    return std::vector<std::string>(names.begin(), names.end());
  }

  test::TempDir dir_;
  std::unique_ptr<Context> context_ = test::MakeContext();
  ConvertOptions options_;
};

const std::vector<Named> kDense = {
    {"model.embed_tokens.weight", {12, 160}},
    {"model.layers.0.up_proj.weight", {150, 160}},
    {"model.layers.0.q_proj.bias", {150}},
    {"model.norm.weight", {160}}};

TEST_F(ConvertTest, HoldsAFolderAgainstItsConfig) {
  const std::string in = dir_.Path("in");
  const auto written = test::WriteSparseCheckpoint(
      R"({"model_type":"llama","vocab_size":24,"hidden_size":24,
          "num_hidden_layers":1,"num_attention_heads":4,
          "num_key_value_heads":2,"head_dim":8,"intermediate_size":40,
          "tie_word_embeddings":true})",
      in);
  ASSERT_TRUE(written.ok()) << written.status();
  options_.allow_mismatch = false;
  const auto whole = Convert(in, "whole", ConvertTarget::kF32);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_THAT(whole->notes, ElementsAre());
  for (const char* name :
       {"model.safetensors.index.json", "model-00001-of-000002.safetensors"}) {
    test::ReplaceInFile(absl::StrCat(in, "/", name), "mlp.up_proj",
                        "mlp.op_proj");
  }
  const auto refused = Convert(in, "refused", ConvertTarget::kF32);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(
      refused.status().message(),
      AllOf(HasSubstr("1 unexpected_tensor, the first: \"model.layers.0."
                      "mlp.op_proj.weight\""),
            HasSubstr("1 missing_tensor, the first: \"model.layers.0."
                      "mlp.up_proj.weight\"")));
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("refused.partial")));
  options_.allow_mismatch = true;
  const auto allowed = Convert(in, "allowed", ConvertTarget::kF32);
  ASSERT_TRUE(allowed.ok()) << allowed.status();
  EXPECT_THAT(allowed->notes,
              ElementsAre(HasSubstr("mlp.op_proj"), HasSubstr("mlp.up_proj")));
  // Of a family without a table nothing can be said but that.
  options_.allow_mismatch = false;
  dir_.Write("in/config.json", R"({"model_type":"bloom"})");
  const auto other = Convert(in, "other", ConvertTarget::kF32);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_THAT(other->notes, ElementsAre(HasSubstr("bloom")));
}

TEST_F(ConvertTest, DenseToEachPackedFormatAndBack) {
  const std::string source =
      Write("in", kDense, R"({"model_type":"llama","torch_dtype":"float32"})");
  const std::vector<float> exact =
      Values(source, "model.layers.0.up_proj.weight");
  struct Case {
    ConvertTarget target;
    const char* name;
    double error;  // of the largest magnitude
  };
  for (const Case& c : {Case{ConvertTarget::kFp8, "fp8", 1 / 16.0},
                        Case{ConvertTarget::kInt4, "int4", 0.071},
                        Case{ConvertTarget::kMxfp4, "mxfp4", 1 / 3.0}}) {
    SCOPED_TRACE(c.name);
    const auto report = Convert(source, c.name, c.target);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->num_packed, 1);
    EXPECT_EQ(report->num_copied, 3);
    const std::string packed = dir_.Path(c.name);
    EXPECT_THAT(
        test::NamesIn(packed),
        ElementsAre("config.json", "model.safetensors", "tokenizer.json"));
    EXPECT_EQ(test::ReadFile(packed + "/tokenizer.json"), "{ \"a\" :1}");
    EXPECT_EQ(Values(packed, "model.norm.weight"),
              Values(source, "model.norm.weight"));
    const std::vector<float> values =
        Values(packed, "model.layers.0.up_proj.weight");
    ASSERT_EQ(values.size(), exact.size());
    float amax = 0;
    for (const float value : exact) amax = std::max(amax, std::fabs(value));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_LE(std::fabs(values[i] - exact[i]), c.error * amax) << i;
    }
    // Packing again is a copy; f32 gives the decoded values exactly.
    const auto again = Convert(packed, absl::StrCat(c.name, "2"), c.target);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->num_copied, 4);
    EXPECT_EQ(test::ReadFile(packed + "/model.safetensors"),
              test::ReadFile(dir_.Path(absl::StrCat(c.name, "2")) +
                             "/model.safetensors"));
    const auto back =
        Convert(packed, absl::StrCat(c.name, "-f32"), ConvertTarget::kF32);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->num_decoded, 1);
    const std::string dense = dir_.Path(absl::StrCat(c.name, "-f32"));
    EXPECT_EQ(NamesOf(dense), NamesOf(source));
    EXPECT_EQ(Values(dense, "model.layers.0.up_proj.weight"), values);
    EXPECT_EQ(test::ReadFile(dense + "/config.json"),
              "{\n  \"model_type\": \"llama\",\n"
              "  \"torch_dtype\": \"float32\"\n}\n");
  }
  // What the config says of the dense modules.
  EXPECT_THAT(test::ReadFile(dir_.Path("int4/config.json")),
              AllOf(HasSubstr("\"pack-quantized\""),
                    HasSubstr("\"model.embed_tokens\"")));
}

TEST_F(ConvertTest, CastsRoundOnceAndNestedConfigsFollow) {
  const std::string source =
      Write("in", kDense,
            R"({"text_config":{"dtype":"float32","quantization_config":
                {"quant_method":"fp8"}},"model_type":"x"})");
  const auto report = Convert(source, "out", ConvertTarget::kBF16);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->num_cast, 4);
  EXPECT_EQ(report->total_bytes, 2 * (12 * 160 + 150 * 160 + 150 + 160));
  const std::vector<float> exact = Values(source, "model.layers.0.q_proj.bias");
  const std::vector<float> cast =
      Values(dir_.Path("out"), "model.layers.0.q_proj.bias");
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(cast[i], static_cast<float>(BFloat16(exact[i])));
  }
  EXPECT_THAT(test::ReadFile(dir_.Path("out/config.json")),
              AllOf(HasSubstr("\"dtype\": \"bfloat16\""),
                    ::testing::Not(HasSubstr("quantization_config"))));
  // Keeping copies the file's tensors byte for byte.
  ASSERT_TRUE(Convert(source, "kept", ConvertTarget::kKeep).ok());
  EXPECT_EQ(test::ReadFile(dir_.Path("kept/model.safetensors")),
            test::ReadFile(source + "/model.safetensors"));
}

TEST_F(ConvertTest, F12OrientationComesFromTheArchitecture) {
  for (const int64_t width : {int64_t{16}, int64_t{64}, int64_t{128}}) {
    SCOPED_TRACE(width);
    // [E, out, in]
    const std::string tag = absl::StrCat("q", width);
    const std::string mlp = "model.layers.0.mlp.";
    const std::string stacked =
        Write(tag,
              {{mlp + "experts.gate_up_proj", {3, 2 * width, 64}},
               {mlp + "experts.down_proj", {3, 64, width}},
               {mlp + "gate.weight", {3, 64}}},
              R"({"model_type":"qwen3_moe"})");
    const auto split = Convert(stacked, tag + "-split", ConvertTarget::kKeep,
                               ExpertTarget::kSeparate);
    ASSERT_TRUE(split.ok()) << split.status();
    const std::string separate = dir_.Path(tag + "-split");
    EXPECT_EQ(NamesOf(separate).size(), 10u);
    const std::vector<float> fused =
        Values(stacked, mlp + "experts.gate_up_proj");
    const std::vector<float> up =
        Values(separate, mlp + "experts.1.up_proj.weight");
    const int64_t at = (2 * width + width) * 64;  // expert 1, second half
    EXPECT_EQ(up, std::vector<float>(fused.begin() + at,
                                     fused.begin() + at + width * 64));
    EXPECT_EQ(Values(separate, mlp + "experts.2.down_proj.weight").size(),
              static_cast<size_t>(64 * width));
    ASSERT_TRUE(Convert(separate, tag + "-again", ConvertTarget::kKeep,
                        ExpertTarget::kStacked)
                    .ok());
    EXPECT_EQ(test::ReadFile(dir_.Path(tag + "-again/model.safetensors")),
              test::ReadFile(stacked + "/model.safetensors"));

    // [E, in, out] dense, [E, out, in] packed
    const std::string oss = absl::StrCat("g", width);
    const std::string dense =
        Write(oss,
              {{mlp + "experts.gate_up_proj", {2, 64, 2 * width}},
               {mlp + "experts.up_bias", {2, 2 * width}}},
              R"({"model_type":"gpt_oss"})");
    ASSERT_TRUE(Convert(dense, oss + "-mx", ConvertTarget::kMxfp4).ok());
    EXPECT_THAT(NamesOf(dir_.Path(oss + "-mx")),
                ElementsAre(mlp + "experts.gate_up_proj_blocks",
                            mlp + "experts.gate_up_proj_scales",
                            mlp + "experts.up_bias"));
    const auto back =
        Convert(dir_.Path(oss + "-mx"), oss + "-f32", ConvertTarget::kF32);
    ASSERT_TRUE(back.ok()) << back.status();
    const std::vector<float> exact =
        Values(dense, mlp + "experts.gate_up_proj");
    const std::vector<float> packed =
        Values(dir_.Path(oss + "-mx"), mlp + "experts.gate_up_proj");
    const std::vector<float> values =
        Values(dir_.Path(oss + "-f32"), mlp + "experts.gate_up_proj");
    for (int64_t e = 0; e < 2; ++e) {
      for (int64_t i = 0; i < 64; ++i) {
        for (int64_t o = 0; o < 2 * width; ++o) {
          const size_t dense_at =
              static_cast<size_t>((e * 64 + i) * 2 * width + o);
          ASSERT_EQ(values[dense_at],
                    packed[static_cast<size_t>((e * 2 * width + o) * 64 + i)]);
          ASSERT_NEAR(values[dense_at], exact[dense_at], 0.1);
        }
      }
    }
  }
  const std::string other =
      Write("other", {{"a.mlp.experts.down_proj", {2, 4, 4}}},
            R"({"model_type":"x"})");
  EXPECT_THAT(std::string(Convert(other, "o", ConvertTarget::kKeep,
                                  ExpertTarget::kSeparate)
                              .status()
                              .message()),
              HasSubstr("model_type \"x\""));
}

TEST_F(ConvertTest, GgufBecomesACheckpointFolder) {
  const std::string fixtures =
      absl::StrCat(ESPALIER_SOURCE_DIR, "/tests/fixtures/gguf/");
  for (const std::string name : {"llama", "qwen3_moe"}) {
    const auto report =
        Convert(fixtures + name + ".gguf", name, ConvertTarget::kF32);
    ASSERT_TRUE(report.ok()) << report.status();
    const auto written =
        SafetensorsFile::Open(dir_.Path(name + "/model.safetensors"));
    const auto expected =
        SafetensorsFile::Open(fixtures + name + ".safetensors");
    ASSERT_TRUE(written.ok() && expected.ok());
    ASSERT_EQ(written->entries().size(), expected->entries().size());
    for (const SafetensorsEntry& entry : expected->entries()) {
      ASSERT_EQ(ToDoubles(written->Load(context_->cpu(), entry.name).value()),
                ToDoubles(expected->Load(context_->cpu(), entry).value()))
          << entry.name;
    }
    EXPECT_THAT(test::ReadFile(dir_.Path(name + "/config.json")),
                AllOf(HasSubstr(absl::StrCat("\"model_type\": \"", name, "\"")),
                      HasSubstr("\"torch_dtype\": \"float32\"")));
    EXPECT_FALSE(report->notes.empty());
  }
}

TEST_F(ConvertTest, ResumesAfterAKillWithTheSameBytes) {
  const std::string source = Write("in", kDense, R"({"model_type":"llama"})");
  options_.max_shard_bytes = 10000;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    options_.progress = [](int64_t done, int64_t total) {
      if (done > total / 2) raise(SIGKILL);
    };
    (void)Convert(source, "out", ConvertTarget::kFp8);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  options_.resume = true;
  EXPECT_EQ(Convert(source, "out", ConvertTarget::kInt4).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const auto resumed = Convert(source, "out", ConvertTarget::kFp8);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_GT(resumed->resumed_bytes, 0);
  EXPECT_GT(resumed->num_shards, 1);
  options_.resume = false;
  ASSERT_TRUE(Convert(source, "fresh", ConvertTarget::kFp8).ok());
  ASSERT_EQ(test::NamesIn(dir_.Path("out")), test::NamesIn(dir_.Path("fresh")));
  for (const std::string& file : test::NamesIn(dir_.Path("out"))) {
    EXPECT_EQ(test::ReadFile(dir_.Path("out/" + file)),
              test::ReadFile(dir_.Path("fresh/" + file)));
  }
}

// Any byte of a finished shard, of its header or its data.
TEST_F(ConvertTest, ResumeWritesADamagedShardAgain) {
  const std::string source = Write("in", kDense, R"({"model_type":"llama"})");
  options_.max_shard_bytes = 10000;
  ASSERT_TRUE(Convert(source, "fresh", ConvertTarget::kFp8).ok());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    options_.progress = [](int64_t done, int64_t total) {
      if (done == total) raise(SIGKILL);  // in the last shard
    };
    (void)Convert(source, "killed", ConvertTarget::kFp8);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  options_.resume = true;
  int64_t undamaged = 0;
  const std::string shard = "model-00001-of-";
  for (const int where : {-1, 0, 1, 2}) {  // none, header, middle, last byte
    SCOPED_TRACE(where);
    const std::string out = absl::StrCat("out", where + 1);
    std::filesystem::copy(dir_.Path("killed.partial"),
                          dir_.Path(out + ".partial"),
                          std::filesystem::copy_options::recursive);
    for (const std::string& name : test::NamesIn(dir_.Path(out + ".partial"))) {
      if (where < 0 || !absl::StartsWith(name, shard)) continue;
      const std::string path = absl::StrCat(out, ".partial/", name);
      std::string bytes = test::ReadFile(dir_.Path(path));
      const size_t at = where == 0   ? bytes.find("model.")
                        : where == 1 ? bytes.size() / 2
                                     : bytes.size() - 1;
      ASSERT_LT(at, bytes.size());
      bytes[at] = static_cast<char>(bytes[at] ^ 1);
      dir_.Write(path, bytes);
    }
    const auto resumed = Convert(source, out, ConvertTarget::kFp8);
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    if (where < 0) undamaged = resumed->resumed_bytes;
    EXPECT_GT(undamaged, 0);
    EXPECT_EQ(resumed->resumed_bytes < undamaged, where >= 0);
    ASSERT_EQ(test::NamesIn(dir_.Path(out)), test::NamesIn(dir_.Path("fresh")));
    for (const std::string& file : test::NamesIn(dir_.Path(out))) {
      EXPECT_EQ(test::ReadFile(dir_.Path(absl::StrCat(out, "/", file))),
                test::ReadFile(dir_.Path("fresh/" + file)))
          << file;
    }
  }
}

TEST_F(ConvertTest, LeavesTheManifestOfTheSourceOut) {
  const std::string source = Write("in", kDense, R"({"model_type":"llama"})");
  dir_.Write("in/espalier-manifest.json", "{}");
  const auto report = Convert(source, "out", ConvertTarget::kBF16);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(
      test::NamesIn(dir_.Path("out")),
      ElementsAre("config.json", "model.safetensors", "tokenizer.json"));
  EXPECT_THAT(report->notes,
              ::testing::Contains(AllOf(HasSubstr("espalier-manifest.json"),
                                        HasSubstr("--write-manifest"))));
}

TEST_F(ConvertTest, NamesWhatItCannotPack) {
  std::filesystem::create_directory(dir_.Path("in"));
  std::vector<float> values(64, 1.0f);
  values[40] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(WriteSafetensors(
                  dir_.Path("in/model.safetensors"),
                  {{"a.up_proj.weight",
                    Tensor::FromHost<float>(context_->cpu(), {2, 32}, values)}})
                  .ok());
  const auto message = [&](ConvertTarget target) {
    std::filesystem::remove_all(dir_.Path("out.partial"));
    return std::string(
        Convert(dir_.Path("in"), "out", target).status().message());
  };
  EXPECT_THAT(message(ConvertTarget::kFp8),
              AllOf(HasSubstr("\"a.up_proj.weight\""),
                    HasSubstr("NaN at row 1, column 8")));
  options_.only = {"*.down_proj.weight", "*up_proj*"};
  EXPECT_THAT(message(ConvertTarget::kFp8),
              HasSubstr("only holds \"*.down_proj.weight\", which names"));
  options_.only = {};
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("out")));
  Write("norms", {{"norm.weight", {4}}}, "{}");
  EXPECT_THAT(
      std::string(Convert(dir_.Path("norms"), "out2", ConvertTarget::kInt4)
                      .status()
                      .message()),
      HasSubstr("no weight to pack"));
}

TEST_F(ConvertTest, MemoryDoesNotGrowWithTheModel) {
#if defined(ESPALIER_ASAN) || defined(ESPALIER_TSAN)
  GTEST_SKIP() << "the sanitizer has memory of its own";
#endif
  // 640 MB of zeros that take no room on the disk.
  std::filesystem::create_directory(dir_.Path("in"));
  {
    auto writer = SafetensorsWriter::Create(
        dir_.Path("in/model.safetensors"),
        {{"a.up_proj.weight", SafetensorsDType::kF32, {10000, 16384}}});
    ASSERT_TRUE(writer.ok()) << writer.status();
    const std::vector<uint8_t> zeros(int64_t{1} << 20);
    for (int i = 0; i < 625; ++i) {
      ASSERT_TRUE(writer->Append("a.up_proj.weight", zeros).ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
  }
  const int64_t peak = test::PeakBytes([&] {
    return Convert(dir_.Path("in"), "out", ConvertTarget::kMxfp4).ok();
  });
  EXPECT_GT(peak, 0);
  EXPECT_LT(peak, int64_t{256} << 20);
}

TEST(GlobTest, StarsStandForAnyText) {
  using internal::MatchesGlob;
  EXPECT_TRUE(MatchesGlob("*_proj.weight", "a.b_proj.weight"));
  EXPECT_FALSE(MatchesGlob("*_proj.weight", "a.b_proj.weight_scale"));
  EXPECT_TRUE(MatchesGlob("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(MatchesGlob("a*b*c", "aXbYbZ"));
  EXPECT_TRUE(MatchesGlob("*", ""));
  EXPECT_FALSE(MatchesGlob("", "a"));
  EXPECT_FALSE(MatchesGlob("*a*a*a*a*a*b", std::string(5000, 'a')));
}

}  // namespace
}  // namespace espalier
