#include "espalier/io/llama2c_convert.h"

#include <cstring>
#include <filesystem>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/checkpoint_reader.h"
#include "espalier/io/internal/test_util.h"
#include "espalier/io/json_object.h"
#include "espalier/io/tokenizer.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::Span<const uint8_t> BytesOf(const std::string& text) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()),
                             text.size());
}

// dim 8, hidden 6, 2 layers, 2 heads of 4, 1 KV head, seq 3. The floats count
// up from 0.
std::string Model(int32_t vocab) {
  std::string bytes = test::BytesOf<int32_t>({8, 6, 2, 2, 1, vocab, 3});
  const int32_t v = std::abs(vocab);
  const int32_t per_layer = 8 + 64 + 32 + 32 + 64 + 8 + 3 * 48;
  const int32_t count =
      v * 8 + 2 * per_layer + 8 + 3 * 4 + (vocab < 0 ? v * 8 : 0);
  for (int32_t i = 0; i < count; ++i) {
    bytes += test::BytesOf<float>({static_cast<float>(i)});
  }
  return bytes;
}

std::string Pieces(
    std::initializer_list<std::pair<const char*, float>> pieces) {
  std::string bytes = test::BytesOf<int32_t>({9});
  const auto add = [&](absl::string_view text, float score) {
    bytes += test::BytesOf<float>({score});
    bytes += test::BytesOf<int32_t>({static_cast<int32_t>(text.size())});
    bytes.append(text.data(), text.size());
  };
  for (const char* control : {"<unk>", "\n<s>\n", "\n</s>\n"}) add(control, 0);
  for (int i = 0; i < 256; ++i) add(absl::StrFormat("<0x%02X>", i), 0);
  for (const auto& [text, score] : pieces) add(text, score);
  return bytes;
}

std::string TokenizerBin() {
  return Pieces({{" a", -0.0f},
                 {"ab", -1},
                 {" ab", -2},
                 {" ", -3},
                 {"a", -4},
                 {"b", -5}});
}
constexpr int32_t kVocab = 259 + 6;

class Llama2cConvertTest : public ::testing::Test {
 protected:
  absl::Status Convert(absl::string_view model, absl::string_view tokenizer) {
    return ConvertLlama2c(dir_.Write("m.bin", model),
                          dir_.Write("t.bin", tokenizer), dir_.Path("out"));
  }
  test::TempDir dir_;
  std::unique_ptr<Context> context_ = test::MakeContext();
};

TEST_F(Llama2cConvertTest, WritesAHuggingFaceFolder) {
  const absl::Status status = Convert(Model(kVocab), TokenizerBin());
  ASSERT_TRUE(status.ok()) << status;
  auto reader = CheckpointReader::Open(dir_.Path("out"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->num_tensors(), 2 + 2 * 9);
  Device& cpu = context_->cpu();
  const int64_t embedding = int64_t{kVocab} * 8;
  const auto first = [&](const std::string& name, const Shape& shape) {
    const auto tensor = reader->Take(cpu, name, shape);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return tensor.ok() ? ToDoubles(*tensor)[0] : -1;
  };
  int64_t at = embedding;
  EXPECT_EQ(first("model.embed_tokens.weight", {kVocab, 8}), 0);
  for (const auto& [name, shape] : std::vector<std::pair<std::string, Shape>>{
           {"input_layernorm", {8}},
           {"self_attn.q_proj", {8, 8}},
           {"self_attn.k_proj", {4, 8}},
           {"self_attn.v_proj", {4, 8}},
           {"self_attn.o_proj", {8, 8}},
           {"post_attention_layernorm", {8}},
           {"mlp.gate_proj", {6, 8}},
           {"mlp.down_proj", {8, 6}},
           {"mlp.up_proj", {6, 8}}}) {
    for (int layer = 0; layer < 2; ++layer) {
      EXPECT_EQ(
          first(absl::StrCat("model.layers.", layer, ".", name, ".weight"),
                shape),
          at)
          << name;
      at += shape.num_elements();
    }
  }
  EXPECT_EQ(first("model.norm.weight", {8}), at);
  EXPECT_THAT(reader->Unused(), IsEmpty());
}

TEST_F(Llama2cConvertTest, ReordersRotaryRows) {
  ASSERT_TRUE(Convert(Model(kVocab), TokenizerBin()).ok());
  auto reader = CheckpointReader::Open(dir_.Path("out"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto q =
      reader->Take(context_->cpu(), "model.layers.0.self_attn.q_proj.weight");
  ASSERT_TRUE(q.ok()) << q.status();
  const std::vector<double> values = ToDoubles(*q);
  std::vector<int> rows;
  rows.reserve(8);
  for (size_t r = 0; r < 8; ++r) {
    rows.push_back(static_cast<int>((values[r * 8] - values[0]) / 8));
  }
  EXPECT_THAT(rows, ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
}

TEST_F(Llama2cConvertTest, AnUntiedHeadHasItsOwnTensor) {
  ASSERT_TRUE(Convert(Model(-kVocab), TokenizerBin()).ok());
  const auto reader = CheckpointReader::Open(dir_.Path("out"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE(reader->Contains("lm_head.weight"));
  const auto config = JsonObject::ReadFile(dir_.Path("out/config.json"));
  bool tied = true;
  int vocab_size = 0;
  ASSERT_TRUE(config->Get("tie_word_embeddings", &tied).ok());
  ASSERT_TRUE(config->Get("vocab_size", &vocab_size).ok());
  EXPECT_FALSE(tied);
  EXPECT_EQ(vocab_size, kVocab);
}

TEST_F(Llama2cConvertTest, TokenizerMergesByScore) {
  ASSERT_TRUE(Convert(Model(kVocab), TokenizerBin()).ok());
  const auto tokenizer = LoadTokenizer(dir_.Path("out"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), kVocab);
  EXPECT_EQ((*tokenizer)->bos_id(), 1);
  EXPECT_EQ((*tokenizer)->eos_id(), 2);
  // " a" comes before "ab"; the space in front of a text is implied.
  EXPECT_THAT((*tokenizer)->Encode("ab").value(), ElementsAre(261));
  EXPECT_THAT((*tokenizer)->Encode("b aba").value(),
              ElementsAre(262, 264, 261, 263));
  EXPECT_THAT((*tokenizer)->Encode("\n").value(), ElementsAre(262, 3 + 10));
  EncodeOptions options;
  options.add_special_tokens = true;
  EXPECT_THAT((*tokenizer)->Encode("a", options).value(), ElementsAre(1, 259));
  EXPECT_EQ((*tokenizer)->Decode({262, 264, 261, 263}), "b aba");
}

TEST_F(Llama2cConvertTest, RefusesEveryTruncation) {
  const std::string model = Model(kVocab);
  for (size_t length = 0; length < model.size(); ++length) {
    EXPECT_EQ(
        ParseLlama2cConfig(BytesOf(model).subspan(0, length)).status().code(),
        absl::StatusCode::kDataLoss)
        << length;
  }
  EXPECT_FALSE(ParseLlama2cConfig(BytesOf(model + "x")).ok());
  const std::string tokenizer = TokenizerBin();
  for (size_t length = 0; length < tokenizer.size(); ++length) {
    EXPECT_FALSE(ConvertLlama2cTokenizer(BytesOf(tokenizer).subspan(0, length),
                                         kVocab, "t")
                     .ok())
        << length;
  }
}

TEST_F(Llama2cConvertTest, RandomBytesNeverCrash) {
  std::mt19937 random(12);
  const std::string model = Model(kVocab);
  const std::string tokenizer = TokenizerBin();
  for (int round = 0; round < 10000; ++round) {
    std::string changed = model.substr(0, 28);
    changed[random() % changed.size()] = static_cast<char>(random());
    const auto config = ParseLlama2cConfig(BytesOf(changed));
    EXPECT_FALSE(config.ok());
    changed = tokenizer;
    changed[random() % changed.size()] = static_cast<char>(random());
    if (round % 10 == 0) {
      const auto json = ConvertLlama2cTokenizer(BytesOf(changed), kVocab, "t");
      if (json.ok()) {
        ParseTokenizer(*json, "", "t").status().IgnoreError();
      }
    }
  }
}

TEST_F(Llama2cConvertTest, SaysWhatIsWrong) {
  const auto message = [&](std::initializer_list<int32_t> head) {
    return std::string(ParseLlama2cConfig(BytesOf(test::BytesOf<int32_t>(head)))
                           .status()
                           .message());
  };
  EXPECT_EQ(message({8, 6, 2, 2, 1, 9, 0}),
            "seq_len is 0, expected 1 to 1048576");
  EXPECT_EQ(message({8, 6, 2, 2, 1, INT32_MIN, 3}),
            "vocab_size is 2147483648, expected 1 to 1048576");
  EXPECT_THAT(message({8, 6, 2, 3, 1, 9, 3}), HasSubstr("do not divide"));
  EXPECT_THAT(message({6, 6, 2, 2, 1, 9, 3}), HasSubstr("even size"));
  EXPECT_THAT(message({1 << 20, 1 << 20, 1 << 20, 2, 1, 1 << 20, 3}),
              HasSubstr("28 bytes, the sizes in its head ask for"));
  EXPECT_THAT(std::string(Convert(Model(kVocab - 1), TokenizerBin()).message()),
              HasSubstr("t.bin: has 265 pieces, the model has 264"));
  const std::string twice = Pieces({{"a", -1}, {"a", -2}});
  EXPECT_THAT(std::string(Convert(Model(261), twice).message()),
              HasSubstr("piece 260, \"a\", stands twice"));
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("out")));
  EXPECT_THAT(std::string(ConvertLlama2c(dir_.Path("no.bin"),
                                         dir_.Path("t.bin"), dir_.Path("out"))
                              .message()),
              HasSubstr("no.bin"));
}

// The real one, from the shared data folder beside the repository.
TEST_F(Llama2cConvertTest, ConvertsStories260K) {
  const std::string weights = ESPALIER_SHARED_DIR "/data/weights/";
  if (!std::filesystem::exists(weights + "stories260K.bin")) {
    GTEST_SKIP() << "no shared data folder beside the repository";
  }
  const absl::Status status = ConvertLlama2c(
      weights + "stories260K.bin", weights + "tok512.bin", dir_.Path("out"));
  ASSERT_TRUE(status.ok()) << status;
  auto reader = CheckpointReader::Open(dir_.Path("out"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->total_bytes(), 260032 * 4);
  const auto tokenizer = LoadTokenizer(dir_.Path("out"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 512);
  // karpathy/llama2.c's encoder gives these ids.
  EXPECT_THAT((*tokenizer)->Encode("Once upon a time").value(),
              ElementsAre(403, 407, 261, 378));
}

}  // namespace
}  // namespace espalier
