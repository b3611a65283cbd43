#include "espalier/io/weight_reader.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"
#include "espalier/io/safetensors_writer.h"
#include "espalier/io/weight_encoder.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Type = SafetensorsDType;

struct Raw {
  TensorSpec spec;
  std::string bytes;
};

// The bytes of a tensor of `count` bytes: each `value`.
Raw Filled(const std::string& name, Type dtype, std::vector<int64_t> shape,
           char value) {
  int64_t bits = BitsOf(dtype);
  for (const int64_t extent : shape) bits *= extent;
  return {{name, dtype, std::move(shape)},
          std::string(static_cast<size_t>(bits / 8), value)};
}

template <typename T>
Raw Values(const std::string& name, Type dtype, std::vector<int64_t> shape,
           const std::vector<T>& values) {
  return {{name, dtype, std::move(shape)},
          std::string(reinterpret_cast<const char*>(values.data()),
                      values.size() * sizeof(T))};
}

constexpr char kInt4Config[] = R"({"quantization_config":{
  "quant_method":"compressed-tensors","format":"pack-quantized",
  "config_groups":{"g":{"targets":["Linear"],
    "weights":{"num_bits":4,"type":"int","strategy":"group","group_size":32}}},
  "ignore":["re:.*gate","lm_head"]}})";
constexpr char kMxfp4Config[] = R"({"text_config":{"quantization_config":{
  "quant_method":"compressed-tensors","format":"mxfp4-pack-quantized",
  "config_groups":{"g":{"targets":["Linear"],
    "weights":{"num_bits":4,"type":"float","strategy":"group","group_size":32}}}
  }}})";

class WeightReaderTest : public ::testing::Test {
 protected:
  // A folder with these tensors; what Open refuses becomes refusal_.
  std::unique_ptr<WeightReader> Open(const std::vector<Raw>& tensors,
                                     absl::string_view config = "{}") {
    std::vector<TensorSpec> specs;
    for (const Raw& raw : tensors) specs.push_back(raw.spec);
    auto writer =
        SafetensorsWriter::Create(dir_.Path("model.safetensors"), specs);
    EXPECT_TRUE(writer.ok()) << writer.status();
    for (const Raw& raw : tensors) {
      EXPECT_TRUE(
          writer
              ->Append(raw.spec.name,
                       absl::MakeConstSpan(
                           reinterpret_cast<const uint8_t*>(raw.bytes.data()),
                           raw.bytes.size()))
              .ok());
    }
    EXPECT_TRUE(writer->Finish().ok());
    dir_.Write("config.json", config);
    return OpenFolder(dir_.path());
  }
  std::unique_ptr<WeightReader> OpenFolder(const std::string& dir) {
    auto reader = CheckpointReader::Open(dir);
    EXPECT_TRUE(reader.ok()) << reader.status();
    reader_ = std::make_unique<CheckpointReader>(*std::move(reader));
    auto parsed = QuantizationConfig::ReadFolder(dir);
    if (!parsed.ok()) {
      refusal_ = std::string(parsed.status().message());
      return nullptr;
    }
    return std::make_unique<WeightReader>(*reader_, *std::move(parsed));
  }
  std::string ConfigRefusal(absl::string_view config) {
    refusal_ = "";
    Open({}, config);
    return refusal_;
  }
  static std::vector<float> Decode(const WeightReader& weights,
                                   const std::string& name) {
    const auto info = weights.Describe(name);
    EXPECT_TRUE(info.ok()) << info.status();
    if (!info.ok()) return {};
    std::vector<float> values(
        static_cast<size_t>(info->rows() * info->columns()));
    const absl::Status status =
        weights.DecodeRows(*info, 0, info->rows(), absl::MakeSpan(values));
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }
  static std::string Refusal(const WeightReader& weights,
                             const std::string& name) {
    const auto info = weights.Describe(name);
    return info.ok() ? "" : std::string(info.status().message());
  }

  test::TempDir dir_;
  std::unique_ptr<CheckpointReader> reader_;
  std::string refusal_;
  std::unique_ptr<Context> context_ = test::MakeContext();
};

// Made by tests/oracle/packed_formats.py: each format as other libraries
// decode it, bit for bit, whole and by rows.
TEST_F(WeightReaderTest, DecodesEveryFormatAsOthersDo) {
  const std::string dir =
      absl::StrCat(ESPALIER_SOURCE_DIR, "/tests/fixtures/packed_formats");
  const auto weights = OpenFolder(dir);
  ASSERT_NE(weights, nullptr) << refusal_;
  const auto expected = SafetensorsFile::Open(dir + "/expected.safetensors");
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(weights->Names().size(), expected->entries().size());
  for (const SafetensorsEntry& entry : expected->entries()) {
    SCOPED_TRACE(entry.name);
    const auto info = weights->Describe(entry.name);
    ASSERT_TRUE(info.ok()) << info.status();
    ASSERT_EQ(absl::MakeConstSpan(info->shape),
              absl::MakeConstSpan(entry.shape));
    const int64_t bytes = BitsOf(entry.dtype) / 8;
    std::vector<uint8_t> want(static_cast<size_t>(entry.num_bytes()));
    ASSERT_TRUE(expected->ReadBytes(entry, 0, absl::MakeSpan(want)).ok());
    for (int64_t step : {info->rows(), int64_t{1}, int64_t{3}}) {
      for (int64_t row = 0; row < info->rows(); row += step) {
        const int64_t count = std::min(step, info->rows() - row);
        std::vector<float> got(static_cast<size_t>(count * info->columns()));
        const absl::Status status =
            weights->DecodeRows(*info, row, count, absl::MakeSpan(got));
        ASSERT_TRUE(status.ok()) << status;
        std::vector<uint8_t> rounded(got.size() * static_cast<size_t>(bytes));
        ASSERT_TRUE(EncodeFloats(entry.dtype, got, rounded.data()).ok());
        for (size_t i = 0; i < got.size(); ++i) {
          const size_t at = static_cast<size_t>(bytes) * i;
          const size_t from =
              static_cast<size_t>(row * info->columns() * bytes) + at;
          if (std::isnan(got[i])) {  // E4M3 0x7f; the payload is free
            EXPECT_EQ(want[from + static_cast<size_t>(bytes) - 1] & 0x7f, 0x7f);
            continue;
          }
          ASSERT_EQ(std::memcmp(rounded.data() + at, want.data() + from,
                                static_cast<size_t>(bytes)),
                    0)
              << "row " << row << " element " << i << ": " << got[i];
        }
      }
    }
  }
}

TEST_F(WeightReaderTest, EveryCodeOfEveryFormatHasItsValue) {
  std::vector<float> group(2, 0.75f);
  std::vector<uint8_t> bytes(256);
  for (size_t i = 0; i < 256; ++i) bytes[i] = static_cast<uint8_t>(i);
  const auto weights = Open({Values("a.weight", Type::kF8E4M3, {2, 128}, bytes),
                             Values("a.scale", Type::kF32, {2, 1}, group)});
  const std::vector<float> values = Decode(*weights, "a.weight");
  for (size_t i = 0; i < 256; ++i) {
    const float exact =
        static_cast<float>(DecodeE4m3(static_cast<uint8_t>(i)) * 0.75);
    EXPECT_TRUE(std::bit_cast<uint32_t>(values[i]) ==
                    std::bit_cast<uint32_t>(exact) ||
                (std::isnan(values[i]) && std::isnan(exact)))
        << i;
  }
  // E2M1 with every E8M0 scale: 16 codes twice over in each of 256 rows.
  std::vector<uint8_t> codes;
  for (int i = 0; i < 256; ++i) {
    for (int j = 0; j < 16; ++j) {
      codes.push_back(static_cast<uint8_t>(j | (15 - j) << 4));
    }
  }
  const auto packed =
      Open({Values("x_blocks", Type::kU8, {256, 1, 16}, codes),
            Values("x_scales", Type::kF8E8M0, {256, 1}, bytes)});
  const std::vector<float> fp4 = Decode(*packed, "x");
  for (size_t i = 0; i < fp4.size(); ++i) {
    const size_t j = i % 32 / 2;
    const double code =
        DecodeE2m1(static_cast<uint8_t>(i % 2 == 0 ? j : 15 - j));
    const float exact =
        static_cast<float>(code * DecodeE8m0(static_cast<uint8_t>(i / 32)));
    EXPECT_TRUE(std::bit_cast<uint32_t>(fp4[i]) ==
                    std::bit_cast<uint32_t>(exact) ||
                (std::isnan(fp4[i]) && std::isnan(exact)))
        << i;
  }
}

TEST_F(WeightReaderTest, MatchesVectorsWorkedOutByHand) {
  // MXFP4 byte 0x2f with scale 128; 0x21 0x8f 0x7a 0xc4 with scale 0x7d.
  std::vector<uint8_t> codes(32, 0);
  codes[0] = 0x2f;
  codes[16] = 0x21;
  codes[17] = 0x8f;
  codes[18] = 0x7a;
  codes[19] = 0xc4;
  const std::vector<uint8_t> scales = {128, 0x7d};
  auto weights = Open({Values("a.weight_packed", Type::kU8, {2, 16}, codes),
                       Values("a.weight_scale", Type::kU8, {2, 1}, scales)},
                      kMxfp4Config);
  ASSERT_NE(weights, nullptr) << refusal_;
  std::vector<float> values = Decode(*weights, "a.weight");
  EXPECT_THAT((std::vector<float>{values[0], values[1]}), ElementsAre(-12, 2));
  EXPECT_THAT(
      std::vector<float>(values.begin() + 32, values.begin() + 40),
      ElementsAre(0.125f, 0.25f, -1.5f, -0.0f, -0.25f, 1.5f, 0.5f, -0.5f));
  EXPECT_TRUE(std::signbit(values[35]));
}

TEST_F(WeightReaderTest, F8ScaleOfAnUnknownName) {
  const Raw codes = Filled("a.weight", Type::kF8E4M3, {256, 256}, 0x7e);
  const std::vector<float> half(4, 0.5f);
  for (const char* name : {"a.weight_scale_inv", "a.weight_scale", "a.scale"}) {
    const auto weights = Open({codes, Values(name, Type::kF32, {2, 2}, half)});
    EXPECT_THAT(Decode(*weights, "a.weight"), Each(224.0f)) << name;
    EXPECT_THAT(weights->Names(), ElementsAre("a.weight"));
  }
  auto weights = Open({codes});
  EXPECT_THAT(Refusal(*weights, "a.weight"),
              AllOf(HasSubstr("\"a.weight\""), HasSubstr("without a scale"),
                    HasSubstr("a.weight_scale_inv, a.weight_scale, a.scale")));
  weights->set_allow_unscaled_fp8(true);
  EXPECT_THAT(Decode(*weights, "a.weight"), Each(448.0f));
  weights = Open({codes, Values("a.weight_scale_inv", Type::kF32, {4}, half)});
  EXPECT_THAT(Refusal(*weights, "a.weight"),
              AllOf(HasSubstr("\"a.weight_scale_inv\""), HasSubstr("F32 [4]"),
                    HasSubstr("[2, 2]")));
  weights = Open({codes, Values("a.weight_scale_inv", Type::kF32, {2, 2}, half),
                  Values("a.scale", Type::kF32, {2, 2}, half)});
  EXPECT_THAT(Refusal(*weights, "a.weight"), HasSubstr("two scales"));
}

// Codes 0 to 15 in turn, scales 1 and 2, 40 columns.
std::vector<Raw> Int4Tensors() {
  std::vector<uint8_t> codes;
  for (int row = 0; row < 2; ++row) {
    for (int j = 0; j < 20; ++j) {
      codes.push_back(static_cast<uint8_t>(2 * j % 16 | (2 * j + 1) % 16 << 4));
    }
  }
  return {
      Values("a.weight_packed", Type::kI32, {2, 5}, codes),
      Values("a.weight_scale", Type::kF32, {2, 2},
             std::vector<float>{1, 2, 1, 2}),
      Values("a.weight_shape", Type::kI64, {2}, std::vector<int64_t>{2, 40})};
}

TEST_F(WeightReaderTest, F9Int4Layout) {
  auto weights = Open(Int4Tensors(), kInt4Config);
  ASSERT_NE(weights, nullptr) << refusal_;
  EXPECT_THAT(weights->Names(), ElementsAre("a.weight"));
  const std::vector<float> values = Decode(*weights, "a.weight");
  ASSERT_EQ(values.size(), 80u);
  for (size_t i = 0; i < 80; ++i) {
    const int column = static_cast<int>(i % 40);
    EXPECT_EQ(values[i], (column % 16 - 8) * (column < 32 ? 1 : 2)) << i;
  }
  const WeightInfo info = weights->Describe("a.weight").value();
  EXPECT_EQ(Describe(info), "int4 group 32 [2, 40]");
  const auto packed = weights->TakePacked(context_->cpu(), info);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(packed->in_features(), 40);
  EXPECT_EQ(packed->resident_bytes(), 0);  // mapped in place
  EXPECT_THAT(ToDoubles(DecodeReference(*packed, kF32)),
              ::testing::ElementsAreArray(
                  std::vector<double>(values.begin(), values.end())));
  EXPECT_THAT(reader_->Unused(), ElementsAre());

  // The padding of the last word is not looked at; the logical shape rules.
  std::vector<Raw> narrow = Int4Tensors();
  narrow[2] =
      Values("a.weight_shape", Type::kI32, {2}, std::vector<int32_t>{2, 35});
  weights = Open(narrow, kInt4Config);
  EXPECT_EQ(Decode(*weights, "a.weight").size(), 70u);
  narrow[2].bytes[4] = 41;
  weights = Open(narrow, kInt4Config);
  EXPECT_THAT(Refusal(*weights, "a.weight"),
              AllOf(HasSubstr("a.weight_packed"), HasSubstr("I32 [2, 5]"),
                    HasSubstr("[2, 6]")));
  weights = Open(Int4Tensors(), "{}");
  EXPECT_THAT(Refusal(*weights, "a.weight"), HasSubstr("quant_method"));
}

TEST_F(WeightReaderTest, RefusesWhatTheConfigDoesNotSay) {
  std::vector<Raw> tensors = Int4Tensors();
  for (Raw& raw : tensors) raw.spec.name = "m.gate" + raw.spec.name.substr(1);
  auto weights = Open(tensors, kInt4Config);
  EXPECT_THAT(Refusal(*weights, "m.gate.weight"), HasSubstr("no group"));
  weights = Open({Int4Tensors()[0], Int4Tensors()[2]}, kInt4Config);
  EXPECT_THAT(Refusal(*weights, "a.weight"),
              AllOf(HasSubstr("\"a.weight_scale\""), HasSubstr("is missing")));
  tensors = Int4Tensors();
  tensors.push_back(Filled("a.weight", Type::kF32, {2, 40}, 0));
  weights = Open(tensors, kInt4Config);
  EXPECT_THAT(Refusal(*weights, "a.weight"), HasSubstr("dense and packed"));
  weights = Open({Filled("a.weight_packed", Type::kU8, {2, 20}, 0),
                  Filled("a.weight_scale", Type::kU8, {2, 1}, 0)},
                 kMxfp4Config);
  EXPECT_THAT(Refusal(*weights, "a.weight"), HasSubstr("multiple of 32"));
  weights = Open({Filled("a.weight", Type::kF8E5M2, {2, 2}, 0)});
  EXPECT_THAT(Refusal(*weights, "a.weight"), HasSubstr("F8_E5M2"));
  EXPECT_EQ(weights->Describe("b").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(WeightReaderTest, RefusesUnknownPackingMethodsByName) {
  const auto refusal = [&](absl::string_view quantization) {
    return ConfigRefusal(
        absl::StrCat("{\"quantization_config\":", quantization, "}"));
  };
  const auto group = [&](absl::string_view format, absl::string_view weights) {
    return refusal(absl::StrCat(
        R"({"quant_method":"compressed-tensors","format":")", format,
        R"(","config_groups":{"g":{"targets":["Linear"],"weights":)", weights,
        "}}}"));
  };
  const char kInt4[] = R"({"num_bits":4,"type":"int","group_size":32})";
  EXPECT_EQ(group("pack-quantized", kInt4), "");
  EXPECT_THAT(group("marlin-24", kInt4), HasSubstr("\"marlin-24\""));
  EXPECT_THAT(group("", kInt4), HasSubstr("packing method \"\""));
  EXPECT_THAT(group("pack-quantized", R"({"num_bits":3,"group_size":32})"),
              HasSubstr("with 3 bits"));
  EXPECT_THAT(group("mxfp4-pack-quantized",
                    R"({"num_bits":4,"type":"float","group_size":16})"),
              HasSubstr("group size 16"));
  EXPECT_THAT(group("pack-quantized", "1"), HasSubstr("weights"));
  EXPECT_THAT(refusal(R"({"quant_method":"awq"})"), HasSubstr("\"awq\""));
  EXPECT_THAT(refusal("{}"), HasSubstr("quant_method"));
  EXPECT_THAT(refusal(R"({"quant_method":"fp8","weight_block_size":[64,128]})"),
              HasSubstr("[64, 128]"));
  EXPECT_THAT(refusal(R"({"quant_method":"fp8","fmt":"e5m2"})"),
              HasSubstr("e5m2"));
  EXPECT_EQ(refusal(R"({"quant_method":"fp8","fmt":"e4m3",
                        "weight_block_size":[128,128]})"),
            "");
  EXPECT_THAT(refusal(R"({"quant_method":"compressed-tensors",
                          "config_groups":{},"ignore":["re:("]})"),
              HasSubstr("re:("));
}

TEST_F(WeightReaderTest, ReadsTargetsAndIgnoreInOrder) {
  const auto json = JsonObject::Parse(R"({"quantization_config":{
    "quant_method":"compressed-tensors","format":"pack-quantized",
    "config_groups":{
      "a":{"targets":["Linear"],
           "weights":{"num_bits":4,"group_size":32}},
      "b":{"targets":["re:.*down_proj$","model.x"],"format":"float-quantized",
           "weights":{"num_bits":8,"type":"float","strategy":"channel"}}},
    "ignore":["lm_head","re:.*self_attn.*"]}})",
                                      "config.json");
  ASSERT_TRUE(json.ok());
  const auto config = QuantizationConfig::Parse(*json);
  ASSERT_TRUE(config.ok()) << config.status();
  const auto group = [&](absl::string_view module) -> std::string {
    const auto found = config->GroupOf(module);
    return *found == nullptr ? "-" : (*found)->name;
  };
  EXPECT_EQ(group("model.layers.0.mlp.up_proj"), "a");
  EXPECT_EQ(group("model.layers.0.mlp.down_proj"), "b");
  EXPECT_EQ(group("model.x"), "b");
  EXPECT_EQ(group("model.xy"), "a");
  EXPECT_EQ(group("lm_head"), "-");
  EXPECT_EQ(group("model.lm_head"), "a");
  EXPECT_EQ(group("model.layers.0.self_attn.q_proj"), "-");
}

TEST_F(WeightReaderTest, StackedExpertsAreTakenInPlaceOneByOne) {
  std::vector<uint8_t> codes(3 * 5 * 2 * 16);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  const std::vector<uint8_t> scales(3 * 5 * 2, 126);
  auto weights = Open({Values("e.up_blocks", Type::kU8, {3, 5, 2, 16}, codes),
                       Values("e.up_scales", Type::kU8, {3, 5, 2}, scales)});
  const WeightInfo info = weights->Describe("e.up").value();
  EXPECT_EQ(Describe(info), "mxfp4 group 32 [3, 5, 64]");
  const std::vector<float> all = Decode(*weights, "e.up");
  for (int64_t e = 0; e < 3; ++e) {
    const auto packed = weights->TakePacked(context_->cpu(), info, e);
    ASSERT_TRUE(packed.ok()) << packed.status();
    EXPECT_EQ(packed->shape(), (Shape{5, 64}));
    EXPECT_EQ(packed->resident_bytes(), 0);
    const std::vector<double> values =
        ToDoubles(DecodeReference(*packed, kF32));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], all[static_cast<size_t>(e) * 320 + i]);
    }
  }
  EXPECT_FALSE(weights->TakePacked(context_->cpu(), info, 3).ok());
}

TEST_F(WeightReaderTest, Fp8BlocksAreTakenInPlace) {
  std::vector<float> scales = {0.5f, 0.25f};
  auto weights =
      Open({Filled("a.weight", Type::kF8E4M3, {130, 100}, 0x38),
            Values("a.weight_scale_inv", Type::kF32, {2, 1}, scales)},
           R"({"quantization_config":{"quant_method":"fp8"}})");
  const WeightInfo info = weights->Describe("a.weight").value();
  const auto packed = weights->TakePacked(context_->cpu(), info);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(packed->resident_bytes(), 0);
  const std::vector<double> values = ToDoubles(DecodeReference(*packed, kF32));
  EXPECT_EQ(values[127 * 100], 0.5);
  EXPECT_EQ(values[128 * 100], 0.25);
  // What runtime has no form for says so.
  weights = Open({Filled("a.weight", Type::kF8E4M3, {3, 100}, 0x38),
                  Filled("a.weight_scale", Type::kF32, {3, 1}, 0)});
  const auto row = weights->TakePacked(context_->cpu(),
                                       weights->Describe("a.weight").value());
  EXPECT_EQ(row.status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace espalier
