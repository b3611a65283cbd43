#include "espalier/io/inspect.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"
#include "espalier/io/units.h"
#include "espalier/tests/checkpoint/sparse_checkpoint.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Config(absl::string_view name) {
  return test::ReadFile(absl::StrCat(
      ESPALIER_SOURCE_DIR, "/tests/fixtures/configs/", name, ".json"));
}

TEST(InspectTest, CountsATinyModel) {
  test::TempDir dir;
  ASSERT_TRUE(
      test::WriteSparseCheckpoint(Config("tiny_kimi"), dir.path()).ok());
  const auto report = InspectCheckpoint(dir.path());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->family_known);
  EXPECT_EQ(report->num_tensors, 338);
  EXPECT_EQ(report->other_tensors, 0);
  ASSERT_EQ(report->layers.size(), 5u);
  EXPECT_EQ(report->layers[0].kind, "kda, mlp");
  EXPECT_EQ(report->layers[4].kind, "mla, moe");
  EXPECT_EQ(report->layers[4].num_tensors, 8 + 6 + 8 + 8 * 6);
  // 8 experts of 3 x 128 x 64, in 4 + 0.25 bits.
  int64_t expert_parameters = 0;
  for (const InspectReport::Sum& sum : report->roles) {
    if (sum.name != "expert") continue;
    expert_parameters = sum.parameters;
    EXPECT_EQ(sum.parameters, 4 * 8 * 3 * 128 * 64);
    EXPECT_EQ(sum.bytes, sum.parameters * 17 / 32);
  }
  // A token meets 2 of 8, and neither the embedding nor the vision tower.
  int64_t others = 0;
  for (const InspectReport::Sum& sum : report->roles) {
    if (sum.name != "expert" && sum.name != "embedding" &&
        sum.name != "vision") {
      others += sum.parameters;
    }
  }
  EXPECT_EQ(report->active_parameters, others + expert_parameters / 4);
  EXPECT_EQ(report->resident_bytes, report->total_bytes);
  EXPECT_EQ(report->streamed_bytes,
            report->total_bytes - expert_parameters * 17 / 32 * 3 / 4);
  EXPECT_EQ(report->lora_experts, 4 * 8 * 3 * (128 + 64));
  const std::string text = ToText(*report);
  EXPECT_THAT(text, AllOf(HasSubstr("kimi_k3: 5 layers"),
                          HasSubstr("8 experts, 2 a token"),
                          HasSubstr("mxfp4-pack-quantized"),
                          HasSubstr("338 tensors"), HasSubstr("1-2")));
  const auto json = WriteJson(ToJson(*report));
  ASSERT_TRUE(json.ok());
  EXPECT_THAT(*json, AllOf(HasSubstr("\"active_parameters\": "),
                           HasSubstr("\"by_layer\": [")));
}

// Every number of the memory section, by hand.
TEST(InspectTest, WhatThisMachineWouldNeed) {
  test::TempDir dir;
  ASSERT_TRUE(test::WriteSparseCheckpoint(
                  R"({"model_type":"qwen3_moe","vocab_size":10,"hidden_size":4,
                      "intermediate_size":9,"num_hidden_layers":2,
                      "num_attention_heads":2,"num_key_value_heads":1,
                      "head_dim":6,"num_experts":3,"num_experts_per_tok":2,
                      "moe_intermediate_size":5,"decoder_sparse_step":1,
                      "mlp_only_layers":[],"tie_word_embeddings":false})",
                  dir.path())
                  .ok());
  auto report = InspectCheckpoint(dir.path());
  ASSERT_TRUE(report.ok()) << report.status();
  // Of a layer q, k, v, o, their norms, two norms, router, experts.
  constexpr int64_t kExperts = int64_t{3} * 3 * 5 * 4;
  constexpr int64_t kOthers =
      12 * 4 + 6 * 4 + 6 * 4 + 4 * 12 + 6 + 6 + 4 + 4 + 3 * 4;
  // Embedding, head and last norm.
  constexpr int64_t kAll = 10 * 4 + 10 * 4 + 4 + 2 * (kExperts + kOthers);
  static_assert(kAll == 796);
  EXPECT_EQ(report->num_tensors, 3 + 2 * (4 + 2 + 2 + 1 + 9));
  EXPECT_EQ(report->parameters, kAll);
  EXPECT_EQ(report->active_parameters, kAll - 40 - 2 * kExperts / 3);
  EXPECT_EQ(report->total_bytes, 2 * kAll);
  EXPECT_EQ(report->resident_bytes, 1592);
  EXPECT_EQ(report->streamed_bytes, 1592 - 360);  // one layer's experts stay
  EXPECT_EQ(report->lora_attention, 2 * (16 + 10 + 10 + 16));
  EXPECT_EQ(report->lora_experts, 2 * 3 * 3 * (5 + 4));
  EXPECT_GT(report->machine_bytes, 1 << 20);
  report->machine_bytes = 1400;
  EXPECT_THAT(
      ToText(*report),
      HasSubstr("memory\n"
                "  all weights resident  1.592 KB of 1.400 KB: does not fit "
                "this machine\n"
                "  experts layer by layer 1.232 KB: fits this machine\n"
                "  LoRA rank 16 on attention 1.664 K parameters, 26.6 KB with "
                "gradients and AdamW in f32\n"
                "  LoRA rank 16 on every expert 2.592 K parameters, 41.5 KB "
                "with gradients and AdamW in f32\n"));
  const JsonValue json = ToJson(*report);
  const JsonValue& memory = *json.Find("memory");
  for (const auto& [key, value] :
       {std::pair<const char*, int64_t>{"machine_bytes", 1400},
        {"resident_bytes", 1592},
        {"experts_by_layer_bytes", 1232},
        {"lora_attention_per_rank", 104},
        {"lora_experts_per_rank", 162},
        // Value, gradient and two moments, 4 bytes each.
        {"bytes_per_trained_parameter", 16}}) {
    EXPECT_EQ(*memory.Find(key)->AsInt(), value) << key;
  }
  report->machine_bytes = 1231;
  EXPECT_THAT(ToText(*report),
              HasSubstr("experts layer by layer 1.232 KB: does not fit"));
  report->machine_bytes = 1592;
  EXPECT_THAT(ToText(*report), HasSubstr("of 1.592 KB: fits this machine"));
}

TEST(InspectTest, AnUnknownFamilyStillHasLayersAndBytes) {
  test::TempDir dir;
  ASSERT_TRUE(
      test::WriteSparseCheckpoint(Config("tiny_kimi"), dir.path()).ok());
  dir.Write("config.json", R"({"model_type":"bloom"})");
  const auto report = InspectCheckpoint(dir.path());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->family_known);
  EXPECT_EQ(report->active_parameters, -1);
  EXPECT_EQ(report->other_tensors, 338);
  EXPECT_EQ(report->layers.size(), 5u);
  EXPECT_THAT(ToText(*report),
              AllOf(HasSubstr("not known"), HasSubstr("\"bloom\""),
                    Not(HasSubstr("active"))));
}

TEST(InspectTest, ABrokenFolderIsAnError) {
  test::TempDir dir;
  EXPECT_EQ(InspectCheckpoint(dir.path()).status().code(),
            absl::StatusCode::kNotFound);
  dir.Write("model.safetensors", "1234");
  EXPECT_EQ(InspectCheckpoint(dir.path()).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(UnitsTest, SaysSizes) {
  EXPECT_EQ(BytesText(512), "512 B");
  EXPECT_EQ(BytesText(1'560'860'324'864), "1.561 TB");
  EXPECT_EQ(CountText(104'183'000'000), "104.2 G");
  EXPECT_EQ(CountText(697'024), "697.0 K");
}

}  // namespace
}  // namespace espalier
