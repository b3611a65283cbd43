#include "espalier/io/family_table.h"

#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/quantization_forms.h"
#include "espalier/io/internal/test_util.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using D = SafetensorsDType;

FamilyTable Fixture(absl::string_view name) {
  const auto config = JsonObject::ReadFile(absl::StrCat(
      ESPALIER_SOURCE_DIR, "/tests/fixtures/configs/", name, ".json"));
  EXPECT_TRUE(config.ok()) << config.status();
  auto table = FamilyTable::FromConfig(*config);
  EXPECT_TRUE(table.ok()) << table.status();
  return *std::move(table);
}

absl::StatusOr<FamilyTable> FromText(absl::string_view json) {
  const auto config = JsonObject::Parse(json, "config.json");
  if (!config.ok()) return config.status();
  return FamilyTable::FromConfig(*config);
}

struct Counts {
  int64_t tensors = 0;    // all dense but for the packed experts
  int64_t elements = 0;   // of the text model
  int64_t attention = 0;  // LoRA parameters for each unit of rank
  int64_t experts_lora = 0;
  int64_t vision = 0;
  int64_t prediction = 0;
};

Counts Count(const FamilyTable& table, bool packed_experts) {
  Counts counts;
  for (const TensorRule& rule : table.rules()) {
    if (rule.optional) continue;
    int64_t parts = 0;
    const size_t form =
        packed_experts && rule.role == TensorRole::kExpert ? 1 : 0;
    std::set<int> alternatives;
    for (const StoredPart& part : rule.parts) {
      if (part.form == form && part.required &&
          alternatives.insert(part.alternative).second) {
        ++parts;
      }
    }
    const int64_t instances = rule.num_instances();
    counts.tensors += instances * parts;
    const int64_t lora = rule.shape.size() == 2
                             ? instances * (rule.shape[0] + rule.shape[1])
                             : 0;
    if (rule.role == TensorRole::kVision) {
      counts.vision += instances;
      continue;
    }
    if (rule.role == TensorRole::kPrediction) {
      counts.prediction += instances;
      continue;
    }
    counts.elements += instances * rule.num_elements();
    if (rule.role == TensorRole::kAttention) counts.attention += lora;
    if (rule.role == TensorRole::kExpert) counts.experts_lora += lora;
  }
  return counts;
}

// models-kimi 3.4 and 7.4: numbers that were counted on the release.
TEST(FamilyTableTest, KimiK3IsTheRelease) {
  const FamilyTable table = Fixture("kimi_k3");
  const Counts counts = Count(table, /*packed_experts=*/true);
  EXPECT_EQ(counts.tensors, 497'220);
  EXPECT_EQ(counts.vision, 168);
  EXPECT_NEAR(static_cast<double>(counts.elements), 2.7795e12, 1e8);
  EXPECT_EQ(counts.attention, 9'122'304);
  EXPECT_NEAR(static_cast<double>(counts.experts_lora), 1.646e9, 1e6);
  EXPECT_EQ(table.facts().layer_kinds[0], "kda, mlp");
  EXPECT_EQ(table.facts().layer_kinds[90], "kda, moe");
  EXPECT_EQ(table.facts().layer_kinds[91], "mla, moe");
  EXPECT_EQ(table.facts().layer_kinds[92], "mla, moe");
  EXPECT_EQ(table.max_stages(), 8);
}

TEST(FamilyTableTest, KimiLinearIsTheRelease) {
  const FamilyTable table = Fixture("kimi_linear");
  const Counts counts = Count(table, false);
  EXPECT_EQ(counts.tensors, 20'493);
  EXPECT_NEAR(static_cast<double>(counts.elements), 49.12e9, 5e6);
  EXPECT_EQ(counts.attention, 697'024);
  EXPECT_NEAR(static_cast<double>(counts.experts_lora), 66.5e6, 1e5);
}

// models-dsa-and-common A.9.
TEST(FamilyTableTest, Glm5NextIsTheRelease) {
  const FamilyTable table = Fixture("glm5_next");
  const Counts counts = Count(table, false);
  EXPECT_EQ(counts.tensors - counts.prediction, 37'534);
  EXPECT_EQ(counts.prediction, 885 + 4);
  EXPECT_EQ(counts.attention, 34 * 49'152 + 11 * 81'920);
  int64_t kda = 0;
  for (const std::string& kind : table.facts().layer_kinds) {
    kda += kind.substr(0, 3) == "kda" ? 1 : 0;
  }
  EXPECT_EQ(kda, 34);
}

TEST(FamilyTableTest, OtherFamilies) {
  // The indexer of GLM-5.2 is in 21 of 78 layers.
  const FamilyTable glm = Fixture("glm_moe_dsa");
  for (const TensorRule& rule : glm.rules()) {
    if (rule.name == "model.layers.#.self_attn.indexer.wk.weight" &&
        rule.role != TensorRole::kPrediction) {
      EXPECT_EQ(rule.holes[0].size(), 21u);
      EXPECT_THAT(rule.shape, ElementsAre(128, 6144));
    }
  }
  EXPECT_NEAR(static_cast<double>(Count(Fixture("olmoe"), false).elements),
              6.92e9, 1e7);
  EXPECT_NEAR(static_cast<double>(Count(Fixture("qwen3_moe"), false).elements),
              30.53e9, 1e7);
  EXPECT_NEAR(static_cast<double>(Count(Fixture("qwen3_next"), false).elements),
              79.67e9, 1e7);
  EXPECT_NEAR(static_cast<double>(Count(Fixture("gpt_oss"), false).elements),
              20.9e9, 1e8);
  EXPECT_NEAR(
      static_cast<double>(Count(Fixture("deepseek_v32"), false).elements),
      671.9e9, 1e9);
}

TEST(FamilyTableTest, FindsNames) {
  const FamilyTable table = Fixture("kimi_linear");
  FamilyTable::Match match;
  ASSERT_TRUE(
      table.Find("model.layers.26.block_sparse_moe.experts.255.w1.weight",
                 D::kBF16, &match));
  const TensorRule& rule = table.rules()[match.rule];
  EXPECT_EQ(rule.role, TensorRole::kExpert);
  EXPECT_THAT(match.numbers, ElementsAre(26, 255));
  EXPECT_EQ(match.instance, 26u * 256 - 1);
  EXPECT_EQ(table.NameOf(rule, rule.name, match.instance),
            "model.layers.26.block_sparse_moe.experts.255.w1.weight");
  // The same name means another shape in a layer of the other kind.
  ASSERT_TRUE(
      table.Find("model.layers.0.self_attn.q_proj.weight", D::kBF16, &match));
  EXPECT_THAT(table.rules()[match.rule].shape, ElementsAre(4096, 2304));
  ASSERT_TRUE(
      table.Find("model.layers.26.self_attn.q_proj.weight", D::kBF16, &match));
  EXPECT_THAT(table.rules()[match.rule].shape, ElementsAre(6144, 2304));
  for (const char* name :
       {"model.layers.27.self_attn.q_proj.weight",
        "model.layers.00.self_attn.q_proj.weight",
        "model.layers.0.mlp.gate_proj.weight2", "model.layers..mlp", "",
        "model.layers.26.block_sparse_moe.experts.256.w1.weight",
        "model.layers.4294967296.self_attn.q_proj.weight",
        "model.layers.0.block_sparse_moe.experts.0.w1.weight", "lm_head",
        "1.2.3.4.5.6"}) {
    EXPECT_FALSE(table.Find(name, D::kBF16, &match)) << name;
  }
}

TEST(FamilyTableTest, PackedFormsHaveTheirShapes) {
  const FamilyTable k3 = Fixture("kimi_k3");
  const std::string expert =
      "language_model.model.layers.92.block_sparse_moe.experts.7.";
  FamilyTable::Match match;
  const auto shape = [&](const FamilyTable& table, const std::string& name,
                         D dtype) {
    EXPECT_TRUE(table.Find(name, dtype, &match)) << name;
    return table.rules()[match.rule].parts[match.part].shape;
  };
  EXPECT_THAT(shape(k3, expert + "w1.weight_packed", D::kU8),
              ElementsAre(3072, 1792));
  EXPECT_THAT(shape(k3, expert + "w2.weight_packed", D::kU8),
              ElementsAre(3584, 1536));
  EXPECT_THAT(shape(k3, expert + "w2.weight_scale", D::kU8),
              ElementsAre(3584, 96));
  const FamilyTable glm = Fixture("glm5_next");
  const std::string q = "model.language_model.layers.3.self_attn.q_a_proj.";
  EXPECT_THAT(shape(glm, q + "weight_scale_inv", D::kF32), ElementsAre(12, 32));
  // One name, two forms: the dtype tells.
  ASSERT_TRUE(glm.Find(q + "weight", D::kF8E4M3, &match));
  EXPECT_EQ(glm.rules()[match.rule].parts[match.part].form, 1);
  ASSERT_TRUE(glm.Find(q + "weight", D::kBF16, &match));
  EXPECT_EQ(glm.rules()[match.rule].parts[match.part].form, 0);
  const FamilyTable oss = Fixture("gpt_oss");
  const std::string mlp = "model.layers.23.mlp.experts.";
  EXPECT_THAT(shape(oss, mlp + "gate_up_proj_blocks", D::kU8),
              ElementsAre(32, 5760, 90, 16));
  EXPECT_THAT(shape(oss, mlp + "gate_up_proj", D::kBF16),
              ElementsAre(32, 2880, 5760));
  const auto k2 = FromText(
      R"({"model_type":"llama","vocab_size":8,"hidden_size":40,
          "num_hidden_layers":1,"num_attention_heads":2,"intermediate_size":64,
          "quantization_config":{"quant_method":"compressed-tensors",
            "format":"pack-quantized","config_groups":{"g":{
            "targets":["Linear"],"weights":{"num_bits":4,
            "group_size":32}}}}})");
  ASSERT_TRUE(k2.ok()) << k2.status();
  const std::string up = "model.layers.0.mlp.up_proj.";
  EXPECT_THAT(shape(*k2, up + "weight_packed", D::kI32), ElementsAre(64, 5));
  EXPECT_THAT(shape(*k2, up + "weight_scale", D::kBF16), ElementsAre(64, 2));
  EXPECT_THAT(shape(*k2, up + "weight_zero_point", D::kI32), ElementsAre(8, 2));
}

TEST(FamilyTableTest, StagesAreRunsOfWholeBlocks) {
  const FamilyTable table = Fixture("kimi_k3");
  for (const int stages : {1, 2, 3, 5, 8}) {
    std::map<int, int> layers;
    int before = 0;
    for (int32_t layer = 0; layer < 93; ++layer) {
      FamilyTable::Match match;
      ASSERT_TRUE(table.Find(absl::StrCat("language_model.model.layers.", layer,
                                          ".input_layernorm.weight"),
                             D::kBF16, &match));
      const int stage =
          table.StageOf(table.rules()[match.rule], match.numbers, stages);
      ASSERT_GE(stage, before);
      ASSERT_LE(stage, before + 1);
      EXPECT_TRUE(stage == before || layer % 12 == 0);
      before = stage;
      ++layers[stage];
    }
    EXPECT_EQ(before, stages - 1);
    EXPECT_EQ(layers.size(), static_cast<size_t>(stages));
  }
}

TEST(FamilyTableTest, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(FromText(R"({"model_type":"bloom"})").status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_THAT(
      std::string(FromText(R"({"model_type":"bloom"})").status().message()),
      AllOf(HasSubstr("\"bloom\""), HasSubstr("kimi_k3")));
  const auto with = [](absl::string_view more) {
    return std::string(
        FromText(absl::StrCat(R"({"model_type":"llama","vocab_size":8,
            "hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,
            "intermediate_size":8)",
                              more, "}"))
            .status()
            .message());
  };
  EXPECT_EQ(with(""), "");
  EXPECT_THAT(
      FromText(R"({"model_type":"llama","vocab_size":8})").status().message(),
      HasSubstr("num_hidden_layers"));
  EXPECT_THAT(with(R"(,"head_dim":-1)"), HasSubstr("head_dim is -1"));
  EXPECT_THAT(with(R"(,"head_dim":0)"), HasSubstr("comes to shape [0, 8]"));
  EXPECT_THAT(with(R"(,"head_dim":1e9)"), HasSubstr("head_dim"));
  // Sizes that would overflow, also in packed forms.
  for (const char* method : {"bitsandbytes", "fp8", "mxfp4"}) {
    EXPECT_THAT(
        with(absl::StrCat(R"(,"head_dim":2147483648,"num_key_value_heads":
                 2147483648,"quantization_config":{"quant_method":")",
                          method,
                          "\",\"weight_block_size\":["
                          "9223372036854775807,9223372036854775807]}")),
        HasSubstr("comes to shape"));
  }
  EXPECT_THAT(with(R"(,"quantization_config":{"quant_method":"fp8",
                   "weight_block_size":[9223372036854775807,1]})"),
              "");
  EXPECT_THAT(
      FromText(R"({"model_type":"qwen3_next","vocab_size":8,"hidden_size":8,
          "num_hidden_layers":4,"num_attention_heads":2,
          "num_key_value_heads":2,"head_dim":4,"linear_num_key_heads":4,
          "linear_num_value_heads":2,"linear_key_head_dim":4,
          "linear_value_head_dim":4,"linear_conv_kernel_dim":4,
          "num_experts":2,"num_experts_per_tok":1,"moe_intermediate_size":8,
          "shared_expert_intermediate_size":8})")
          .status()
          .message(),
      HasSubstr("in units of 0"));
  EXPECT_THAT(with(R"(,"quantization_config":{"quant_method":"awq"})"),
              HasSubstr("\"awq\""));
  // What the reader of weights refuses or knows, the table does too.
  EXPECT_THAT(with(R"(,"text_config":{"quantization_config":
                   {"quant_method":"fp8"}},"quantization_config":
                   {"quant_method":"fp8"})"),
              HasSubstr("stands outside and inside text_config"));
  EXPECT_THAT(with(R"(,"quantization_config":{"quant_method":"fp8",
                   "fmt":"e5m2"})"),
              HasSubstr("\"e5m2\""));
  const auto groups = [&](const std::string& second) {
    return with(absl::StrCat(
        R"(,"quantization_config":{"quant_method":"compressed-tensors",
        "format":"pack-quantized","config_groups":{"a":{"targets":["Linear"],
        "weights":{"num_bits":4,"type":"int","strategy":"group",
        "group_size":32}},"b":{"targets":["x"],"weights":{"num_bits":)",
        second, R"(,"type":"int","strategy":"group","group_size":32}}}})"));
  };
  EXPECT_EQ(groups("4"), "");
  EXPECT_THAT(groups("8"), HasSubstr("are stored differently"));
  EXPECT_EQ(with(R"(,"quantization_config":{"quant_method":"modelopt"})"), "");
  EXPECT_THAT(with(R"(,"quantization_config":{"quant_method":"modelopt",
                   "quant_algo":"FP8"})"),
              HasSubstr("quant_algo is \"FP8\""));
  EXPECT_THAT(with(R"(,"quantization_config":{"quant_method":"bitsandbytes",
                   "load_in_8bit":true})"),
              HasSubstr("in 8 bits"));
  EXPECT_THAT(FromText(R"({"model_type":"llama","vocab_size":8,
      "hidden_size":8,"num_hidden_layers":2000000000,"num_attention_heads":2,
      "intermediate_size":8})")
                  .status()
                  .message(),
              HasSubstr("num_hidden_layers is 2000000000"));
}

}  // namespace
}  // namespace espalier
