// LoRA on every linear layer of every family, from folder to adapter.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

#include "espalier/io/safetensors_reader.h"
#include "espalier/model/registry.h"
#include "espalier/tests/support/letter_tokenizer.h"
#include "espalier/train/session.h"

namespace espalier {
namespace {

class FamiliesTest : public ::testing::TestWithParam<std::string> {
 protected:
  // The family's fixture with a tokenizer, and texts in which every letter is
  // followed by the third behind it.
  FamiliesTest() {
    std::string pattern = ::testing::TempDir() + "/families.XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) dir_ = pattern;
    std::filesystem::copy(Fixture(), dir_ + "/model");
    Write("model/tokenizer.json", test::LetterTokenizer('z'));
    Write("model/tokenizer_config.json", test::kLetterTokenizerConfig);
    std::string texts;
    for (int i = 0; i < 64; ++i) {
      for (int j = 0; j < 20 + i % 7; ++j) {
        texts.push_back(static_cast<char>('a' + (i * 5 + j * 3) % 26));
      }
      texts += "\n\n";
    }
    config_.model_dir = dir_ + "/model";
    config_.data.paths = {Write("texts.txt", texts)};
    config_.data.max_sample_tokens = 64;
    config_.micro_batch_tokens = 192;
    config_.held_out_fraction = 0.2;
    config_.lora_rank = 3;
    config_.lora_alpha = 12;
    config_.learning_rate = 2e-2;
    config_.max_steps = 10;
  }
  ~FamiliesTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }

  static std::string Fixture() {
    return absl::StrCat(ESPALIER_SOURCE_DIR, "/tests/fixtures/", GetParam());
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
    return dir_ + "/" + name;
  }

  std::string dir_;
  SessionConfig config_;
};

TEST_P(FamiliesTest, TrainingLowersTheHeldOutLoss) {
  for (const char* dtype : {"f32", "bf16"}) {
    config_.dtype = dtype;
    auto session = Session::Open(config_);
    ASSERT_TRUE(session.ok()) << session.status();
    const auto before = (*session)->Evaluate();
    ASSERT_TRUE(before.ok()) << before.status();
    EXPECT_GT(before->num_samples, 4);
    for (int64_t step = 0; step < config_.max_steps; ++step) {
      const auto result = (*session)->Step();
      ASSERT_TRUE(result.ok()) << result.status();
    }
    const auto after = (*session)->Evaluate();
    ASSERT_TRUE(after.ok()) << after.status();
    EXPECT_LT(after->loss, 0.6 * before->loss) << dtype;
  }
}

// Names and shapes as PEFT writes them; tests/oracle/dense.py asked it.
TEST_P(FamiliesTest, TheAdapterHasTheNamesOfPeft) {
  auto session = Session::Open(config_);
  ASSERT_TRUE(session.ok()) << session.status();
  const absl::Status saved = (*session)->SaveAdapter(dir_ + "/adapter");
  ASSERT_TRUE(saved.ok()) << saved;
  const auto file =
      SafetensorsFile::Open(dir_ + "/adapter/adapter_model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<std::string> got;
  for (const SafetensorsEntry& entry : file->entries()) {
    got.push_back(
        absl::StrCat(entry.name, " ", absl::StrJoin(entry.shape, " ")));
  }
  std::sort(got.begin(), got.end());
  std::vector<std::string> want;
  std::ifstream lines(Fixture() + "/peft_all_linear.txt");
  for (std::string line; std::getline(lines, line);) want.push_back(line);
  EXPECT_FALSE(want.empty());
  EXPECT_EQ(got, want);
}

INSTANTIATE_TEST_SUITE_P(Families, FamiliesTest,
                         ::testing::ValuesIn(ModelFamilies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace espalier
