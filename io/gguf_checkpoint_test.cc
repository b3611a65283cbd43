#include "espalier/io/gguf_checkpoint.h"

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"
#include "espalier/io/safetensors_reader.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string FixturePath(const std::string& name) {
  return absl::StrCat(ESPALIER_SOURCE_DIR, "/tests/fixtures/gguf/", name);
}

// Made by tests/oracle/gguf_files.py: written and dequantised by the gguf
// package, names, row order and values as in the Hugging Face checkpoint.
class GgufCheckpointTest : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Files, GgufCheckpointTest,
                         ::testing::Values("llama", "qwen3_moe"),
                         [](const auto& info) { return info.param; });

TEST_P(GgufCheckpointTest, HoldsWhatTheOraclePutIn) {
  const std::string name = GetParam();
  const auto checkpoint = GgufCheckpoint::Open(FixturePath(name + ".gguf"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto expected =
      SafetensorsFile::Open(FixturePath(name + ".safetensors"));
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(checkpoint->weights().size(), expected->entries().size());
  for (const GgufWeight& weight : checkpoint->weights()) {
    SCOPED_TRACE(weight.name);
    const SafetensorsEntry* entry = expected->Find(weight.name);
    ASSERT_NE(entry, nullptr);
    ASSERT_EQ(absl::MakeConstSpan(weight.shape),
              absl::MakeConstSpan(entry->shape));
    std::vector<float> want(static_cast<size_t>(entry->num_bytes() / 4));
    ASSERT_TRUE(
        expected
            ->ReadBytes(*entry, 0,
                        absl::MakeSpan(reinterpret_cast<uint8_t*>(want.data()),
                                       want.size() * 4))
            .ok());
    const int64_t rows = weight.shape[0];
    const int64_t columns = static_cast<int64_t>(want.size()) / rows;
    for (const int64_t step : {rows, int64_t{1}, int64_t{3}}) {
      for (int64_t row = 0; row < rows; row += step) {
        const int64_t count = std::min(step, rows - row);
        std::vector<float> got(static_cast<size_t>(count * columns));
        const absl::Status status =
            checkpoint->DecodeRows(weight, row, count, absl::MakeSpan(got));
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(std::memcmp(got.data(), want.data() + row * columns,
                              got.size() * 4),
                  0)
            << "rows " << row << " to " << row + count;
      }
    }
  }
}

TEST(GgufConfigTest, KeysBecomeConfigJson) {
  const auto llama = GgufCheckpoint::Open(FixturePath("llama.gguf"));
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_EQ(WriteJson(llama->config(), 0).value(),
            R"({"architectures":["LlamaForCausalLM"],"attention_bias":true,)"
            R"("bos_token_id":4,"eos_token_id":5,"head_dim":4,)"
            R"("hidden_act":"silu","hidden_size":256,"intermediate_size":8,)"
            R"("max_position_embeddings":512,"mlp_bias":false,)"
            R"("model_type":"llama","num_attention_heads":2,)"
            R"("num_hidden_layers":1,"num_key_value_heads":1,)"
            R"("rms_norm_eps":1e-05,"rope_theta":5e+05,)"
            R"("tie_word_embeddings":false,"vocab_size":6})");
  EXPECT_THAT(llama->tokenizer(),
              ::testing::Contains(std::pair<std::string, std::string>(
                  "ggml.tokens", "6 entries")));
  EXPECT_THAT(llama->tokenizer(),
              ::testing::Contains(std::pair<std::string, std::string>(
                  "ggml.model", "\"gpt2\"")));
  const auto moe = GgufCheckpoint::Open(FixturePath("qwen3_moe.gguf"));
  ASSERT_TRUE(moe.ok()) << moe.status();
  EXPECT_EQ(*moe->config().Find("model_type")->AsString(), "qwen3_moe");
  EXPECT_EQ(*moe->config().Find("num_experts")->AsInt(), 3);
  EXPECT_EQ(*moe->config().Find("moe_intermediate_size")->AsInt(), 8);
  EXPECT_TRUE(*moe->config().Find("tie_word_embeddings")->AsBool());
}

class GgufFileTest : public ::testing::Test {
 protected:
  std::string Refusal(absl::string_view bytes) {
    const auto file = GgufCheckpoint::Open(dir_.Write("t.gguf", bytes));
    return file.ok() ? "" : std::string(file.status().message());
  }
  // Overwrites bytes of the fixture that follow the first `text`.
  std::string Patched(absl::string_view text, size_t after,
                      const std::string& bytes) {
    std::string file = good_;
    const size_t at = file.find(std::string(text));
    EXPECT_NE(at, std::string::npos);
    file.replace(at + text.size() + after, bytes.size(), bytes);
    return file;
  }

  test::TempDir dir_;
  const std::string good_ = test::ReadFile(FixturePath("llama.gguf"));
};

TEST_F(GgufFileTest, DistrustsEveryNumber) {
  ASSERT_EQ(Refusal(good_), "");
  const std::string huge = test::BytesOf<uint64_t>({uint64_t{1} << 62});
  EXPECT_THAT(Refusal("GGML" + good_.substr(4)), HasSubstr("GGUF"));
  EXPECT_THAT(Refusal(good_.substr(0, 4) + test::BytesOf<uint32_t>({1}) +
                      good_.substr(8)),
              HasSubstr("version 1"));
  EXPECT_THAT(Refusal(good_.substr(0, 8) + huge + good_.substr(16)),
              HasSubstr("tensors"));
  EXPECT_THAT(Refusal(good_.substr(0, 16) + huge + good_.substr(24)),
              HasSubstr("keys"));
  EXPECT_THAT(Refusal(good_.substr(0, 24) + huge + good_.substr(32)),
              HasSubstr("a string of 4611686018427387904 bytes"));
  // An array of 2^62 strings; then one string of 2^62 bytes in it.
  EXPECT_THAT(Refusal(Patched("tokenizer.ggml.tokens", 8, huge)),
              AllOf(HasSubstr("tokenizer.ggml.tokens"), HasSubstr("an array")));
  EXPECT_THAT(Refusal(Patched("tokenizer.ggml.tokens", 16, huge)),
              AllOf(HasSubstr("tokenizer.ggml.tokens"), HasSubstr("a string")));
  // Tensor info: dims, extents, type, offset.
  const auto dims = [](uint32_t n) { return test::BytesOf<uint32_t>({n}); };
  EXPECT_THAT(Refusal(Patched("token_embd.weight", 0, dims(5))),
              AllOf(HasSubstr("\"token_embd.weight\""), HasSubstr("5 dims")));
  EXPECT_THAT(Refusal(Patched("token_embd.weight", 4, huge)),
              HasSubstr("overflows"));
  EXPECT_THAT(
      Refusal(Patched("token_embd.weight", 4, test::BytesOf<uint64_t>({0}))),
      HasSubstr("empty"));
  EXPECT_THAT(
      Refusal(Patched("token_embd.weight", 4, test::BytesOf<uint64_t>({250}))),
      HasSubstr("multiple of 32"));
  EXPECT_THAT(Refusal(Patched("token_embd.weight", 20, dims(13))),
              HasSubstr("ggml type 13"));
  EXPECT_THAT(Refusal(Patched("token_embd.weight", 24, huge)),
              HasSubstr("beyond the end"));
  EXPECT_THAT(
      Refusal(Patched("output_norm.weight", 16, test::BytesOf<uint64_t>({0}))),
      HasSubstr("overlap"));
  EXPECT_THAT(
      Refusal(Patched("output_norm.weight", 16, test::BytesOf<uint64_t>({8}))),
      HasSubstr("multiple of 64"));
  EXPECT_THAT(Refusal(Patched("layer_norm_rms_epsilon", 4,
                              test::BytesOf<float>({std::nanf("")}))),
              HasSubstr("as config.json"));
  // Names and keys.
  std::string file = good_;
  file.replace(file.find("blk.0.attn_v.weight"), 12, "blk.0.attn_x");
  EXPECT_THAT(Refusal(file), HasSubstr("\"blk.0.attn_x.weight\""));
  file = good_;
  file.replace(file.find("blk.0.attn_v.weight"), 12, "blk.7.attn_v");
  EXPECT_THAT(Refusal(file), HasSubstr("\"blk.7.attn_v.weight\""));
  file = good_;
  file.replace(file.find("blk.0.attn_v.weight"), 12, "blk.0.attn_k");
  EXPECT_THAT(Refusal(file), HasSubstr("stands twice"));
  EXPECT_THAT(Refusal(Patched("general.architecture", 12, "mamba")),
              HasSubstr("\"mamba\""));
}

TEST_F(GgufFileTest, EveryTruncationIsRefused) {
  for (size_t length = 0; length < good_.size();
       length += length < 3000 ? 7 : 251) {
    EXPECT_NE(Refusal(good_.substr(0, length)), "") << length;
  }
}

TEST_F(GgufFileTest, RandomBytesNeverCrash) {
  std::mt19937 random(9);
  int opened = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string bytes = good_;
    for (int i = 0; i < 3; ++i) {
      bytes[random() % 2400] = static_cast<char>(random());
    }
    const auto file = GgufCheckpoint::Open(dir_.Write("t.gguf", bytes));
    if (!file.ok()) continue;
    ++opened;
    const GgufWeight& weight =
        file->weights()[random() % file->weights().size()];
    std::vector<float> row(weight.shape.size() == 1
                               ? size_t{1}
                               : static_cast<size_t>(weight.shape[1]));
    (void)file->DecodeRows(weight, 0, 1, absl::MakeSpan(row));
  }
  EXPECT_GT(opened, 20);
}

}  // namespace
}  // namespace espalier
