#include "espalier/io/inspect.h"

#include <string>

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
