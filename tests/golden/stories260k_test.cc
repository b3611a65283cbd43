// A real Llama: 260,032 parameters trained on short stories, in the shared data
// folder beside the repository. Skips, saying so, where that is absent.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/llama2c_convert.h"
#include "espalier/train/session.h"

namespace espalier {
namespace {

const std::string kShared = ESPALIER_SHARED_DIR;

// An emulator is a hundred times slower: fewer steps on less text.
#if defined(ESPALIER_EMULATED)
constexpr int64_t kSteps = 2;
constexpr size_t kTextBytes = 4000;
constexpr double kFall = 0;
#else
constexpr int64_t kSteps = 12;
constexpr size_t kTextBytes = 40000;
constexpr double kFall = 0.3;
#endif

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Stories260kTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string weights = kShared + "/data/weights/stories260K.bin";
    if (!std::filesystem::exists(weights)) {
      GTEST_SKIP() << "no " << weights << " on this machine";
    }
    std::string pattern = ::testing::TempDir() + "/stories.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    const absl::Status converted = ConvertLlama2c(
        weights, kShared + "/data/weights/tok512.bin", dir_ + "/model");
    ASSERT_TRUE(converted.ok()) << converted;
  }
  void TearDown() override {
    if (!dir_.empty()) std::filesystem::remove_all(dir_);
  }

  SessionConfig Config(const std::string& text) const {
    std::ofstream(dir_ + "/data.txt", std::ios::binary) << text;
    SessionConfig config;
    config.model_dir = dir_ + "/model";
    config.data.paths = {dir_ + "/data.txt"};
    config.dtype = "f32";
    config.learning_rate = 4e-3;
    config.max_steps = kSteps;
    config.data.max_sample_tokens = 128;
    config.micro_batch_tokens = 512;
    return config;
  }

  std::string dir_;
};

TEST_F(Stories260kTest, KnowsItsOwnKindOfText) {
  SessionConfig config = Config(
      "Once upon a time, there was a little girl named Lily. She loved to "
      "play outside in the park. One day, she saw a big, red ball.\n\n"
      "Once upon a time, there was a boy named Tim. Tim had a dog. They went "
      "to the park and played with a ball. They were very happy.\n");
  config.held_out_paths = config.data.paths;
  auto session = Session::Open(config);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto held_out = (*session)->Evaluate();
  ASSERT_TRUE(held_out.ok()) << held_out.status();
  EXPECT_GT(held_out->num_tokens, 60);
  // 1.2968 is published for its validation stories; a wrong rotary layout, a
  // transposed weight or a shifted label gives more than 4.
  EXPECT_LT(held_out->loss, 2.0);
}

TEST_F(Stories260kTest,
       LoraLowersHeldOutLossWithTheSameBitsAtOneAndTwoThreads) {
  const std::string text = ReadFile(kShared + "/data/text/tinyshakespeare.txt")
                               .substr(0, kTextBytes);
  ASSERT_EQ(text.size(), kTextBytes);
  SessionConfig config = Config(text);
  std::vector<double> losses[2];
  std::string adapters[2];
  for (int i = 0; i < 2; ++i) {
    config.num_threads = i + 1;
    auto session = Session::Open(config);
    ASSERT_TRUE(session.ok()) << session.status();
    const double before = (*session)->Evaluate()->loss;
    for (int64_t step = 0; step < config.max_steps; ++step) {
      const auto result = (*session)->Step();
      ASSERT_TRUE(result.ok()) << result.status();
      losses[i].push_back(result->loss);
    }
    EXPECT_LT((*session)->Evaluate()->loss, before - kFall);
    const std::string out = dir_ + "/adapter" + std::to_string(i);
    ASSERT_TRUE((*session)->SaveAdapter(out).ok());
    adapters[i] = ReadFile(out + "/adapter_model.safetensors");
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_TRUE(adapters[0] == adapters[1]);
}

}  // namespace
}  // namespace espalier
