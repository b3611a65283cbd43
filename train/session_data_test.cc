#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/autograd/mode.h"
#include "espalier/io/checkpoint_reader.h"
#include "espalier/io/data_set.h"
#include "espalier/io/json_object.h"
#include "espalier/model/load.h"
#include "espalier/model/registry.h"
#include "espalier/runtime/context.h"
#include "espalier/tests/support/refusals.h"
#include "espalier/train/demo.h"
#include "espalier/train/internal/corpus.h"
#include "espalier/train/internal/loss.h"
#include "espalier/train/open_data.h"
#include "espalier/train/session.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

// An untrained demo model with a chat template.
class SessionDataTest : public ::testing::Test {
 protected:
  SessionDataTest() {
    std::string pattern = ::testing::TempDir() + "/session-data.XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) dir_ = pattern;
    DemoOptions options;
    options.pretrain_steps = 0;
    const absl::Status made = WriteDemo(dir_ + "/demo", options);
    EXPECT_TRUE(made.ok()) << made;
    Write("demo/model/chat_template.jinja",
          "{% for m in messages %}{{ m.content }}</s>{% endfor %}");
    config_.model_dir = dir_ + "/demo/model";
    config_.dtype = "f32";
    config_.lora_rank = 2;
    config_.max_steps = 4;
    config_.held_out_fraction = 0;
    config_.data.max_sample_tokens = 64;
    config_.micro_batch_tokens = 64;
    config_.grad_accum_steps = 3;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
    return dir_ + "/" + name;
  }

  std::string dir_;
  SessionConfig config_;
};

// Chats with a weight each, prompt and completion, a token folder and text: the
// loss of a step is that of its tokens, whichever micro-batch they are in.
TEST_F(SessionDataTest, LossIsTheWeightedMeanOverAllMicroBatches) {
  std::string chats, pairs, texts;
  for (int i = 0; i < 12; ++i) {
    absl::StrAppend(&chats, R"({"messages":[{"role":"user","content":"mix )", i,
                    R"("},{"role":"assistant","content":"stir the bowl )", i,
                    R"(","weight":)", 0.25 * (i % 4), "}]}\n");
    absl::StrAppend(&pairs, R"({"prompt":"take )", i,
                    R"( eggs","completion":"boil them"})", "\n");
    absl::StrAppend(&texts, "once there was a fox of ", i, " years\n\n");
  }
  config_.data.paths = {Write("texts.txt", texts)};
  const auto set = OpenData(config_.model_dir, config_.data);
  ASSERT_TRUE(set.ok()) << set.status();
  ASSERT_TRUE(PackDataSet(*set, dir_ + "/packed", false).ok());
  config_.data.paths = {Write("chats.jsonl", chats),
                        Write("pairs.jsonl", pairs), dir_ + "/packed"};
  config_.data.weights = {4, 2, 1};

  auto session = Session::Open(config_);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto step = (*session)->Step();
  ASSERT_TRUE(step.ok()) << step.status();

  // The same by hand; adapters begin as nothing.
  const auto context = Context::Create(ContextOptions());
  const auto model = CreateModel(config_.model_dir);
  auto checkpoint = CheckpointReader::Open(config_.model_dir, ReadMode::kAuto);
  ASSERT_TRUE(context.ok() && model.ok() && checkpoint.ok());
  Device& device = (*context)->cpu();
  ASSERT_TRUE(LoadWeights(**model, *checkpoint, device, kF32).ok());
  CorpusOptions options;
  options.micro_batch_tokens = config_.micro_batch_tokens;
  options.held_out_fraction = 0;
  const auto corpus = Corpus::Open(config_.model_dir, config_.data,
                                   (*model)->vocab_size(), options);
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  const NoGrad no_grad;
  double loss = 0, weight = 0, mean_of_means = 0;
  int64_t num_trained = 0;
  for (int i = 0; i < 3; ++i) {
    Batch batch;
    ASSERT_TRUE(*(*corpus)->NextTrain(device, &batch));
    const std::vector<double> weights = ToDoubles(batch.weights);
    double sum_weights = 0;
    for (const double each : weights) sum_weights += each;
    const LossSum sum = TokenLoss(**model, batch);
    EXPECT_NEAR(sum.weight, sum_weights, 1e-6);
    loss += sum.loss;
    weight += sum.weight;
    mean_of_means += sum.loss / sum.weight / 3;
    num_trained += batch.num_trained;
  }
  EXPECT_NEAR(step->loss, loss / weight, 1e-9);
  EXPECT_GT(std::abs(mean_of_means - step->loss), 1e-4);
  EXPECT_NE(weight, static_cast<double>(num_trained));
  EXPECT_EQ(step->num_trained_tokens, num_trained);
  EXPECT_EQ((*session)->data_report().num_samples,
            (*corpus)->report().num_samples);
}

TEST_F(SessionDataTest, OutputIsTriedBeforeAnythingElse) {
  config_.data.paths = {Write("a.txt", "a fox\n\na bear\n")};
  const std::string taken = Write("taken", "x");
  config_.output_dir = taken + "/adapter";
  EXPECT_THAT(std::string(Session::Open(config_).status().message()),
              HasSubstr(absl::StrCat("output_dir: cannot create ", taken)));
  config_.output_dir = dir_ + "/demo";
  const absl::Status exists = Session::Open(config_).status();
  EXPECT_EQ(exists.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(exists.message(), HasSubstr(dir_ + "/demo"));
  std::filesystem::create_directory(dir_ + "/empty");
  std::filesystem::create_directory_symlink(dir_ + "/empty", dir_ + "/link");
  std::filesystem::create_symlink(dir_ + "/nowhere", dir_ + "/dangling");
  for (const char* name : {"/empty", "/link", "/link/", "/dangling"}) {
    config_.output_dir = dir_ + name;
    const absl::Status refused = Session::Open(config_).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists) << name;
    EXPECT_THAT(refused.message(), HasSubstr("is there already")) << name;
  }
  config_.output_dir = dir_ + "/new/adapter";
  const auto session = Session::Open(config_);
  ASSERT_TRUE(session.ok()) << session.status();
  for (const auto& entry : std::filesystem::directory_iterator(dir_ + "/new")) {
    EXPECT_EQ(entry.path().filename(), ".adapter.lock");
  }
  ASSERT_TRUE((*session)->Step().ok());
  EXPECT_TRUE((*session)->SaveAdapter(config_.output_dir).ok());
}

TEST_F(SessionDataTest, WarnsOfPositionsThatTheModelHasNotMet) {
  config_.data.paths = {Write("a.txt", "a fox\n\na bear\n")};
  const std::string path = dir_ + "/demo/model/config.json";
  const auto json = JsonObject::ReadFile(path);
  ASSERT_TRUE(json.ok()) << json.status();
  int64_t most = 0;
  ASSERT_TRUE(json->Get("max_position_embeddings", &most).ok());
  for (const int64_t tokens : {most, most + 1}) {
    config_.data.max_sample_tokens = tokens;
    config_.micro_batch_tokens = tokens;
    const auto session = Session::Open(config_);
    ASSERT_TRUE(session.ok()) << session.status();
    const std::string warning =
        absl::StrCat("warning: data.max_sample_tokens is ", tokens,
                     ", the model's max_position_embeddings ", most);
    EXPECT_EQ(
        absl::StrContains(absl::StrJoin((*session)->summary(), "\n"), warning),
        tokens > most);
  }
}

TEST_F(SessionDataTest, BadRecordTakesNothingAway) {
  std::string text;
  for (int i = 0; i < 600; ++i) {
    absl::StrAppend(&text, R"({"text":"the )", i, R"( foxes ran"})", "\n");
  }
  config_.data.paths = {Write("a.jsonl", text + "{\"text\":1}\n")};
  config_.held_out_paths = {Write("b.jsonl", "{\"text\":\"the fox ran\"}\n")};
  config_.seed = 3;
  const auto session = Session::Open(config_);
  ASSERT_TRUE(session.ok()) << session.status();
  absl::StatusOr<StepResult> step = (*session)->Step();
  ASSERT_TRUE(step.ok()) << step.status();
  for (int i = 0; i < 200 && step.ok(); ++i) step = (*session)->Step();
  EXPECT_EQ(step.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(step.status().message(),
              HasSubstr("a.jsonl:601: text is an integer"));
  EXPECT_EQ((*session)->Step().status(), step.status());
  const auto held_out = (*session)->Evaluate();
  ASSERT_TRUE(held_out.ok()) << held_out.status();
  EXPECT_EQ(held_out->num_samples, 1);
  EXPECT_TRUE((*session)->SaveAdapter(dir_ + "/adapter").ok());
}

TEST_F(SessionDataTest, RefusalsNameTheField) {
  config_.data.paths = {"a"};
  SessionConfig largest = config_;
  largest.lora_rank = kMaxLoraRank;
  largest.micro_batch_tokens = kMaxMicroBatchTokens;
  largest.grad_accum_steps = kMaxGradAccumSteps;
  largest.num_threads = 1024;
  EXPECT_EQ(Validate(largest), absl::OkStatus());
  const test::Refusals<SessionConfig> refusals = {
      {[](SessionConfig& c) { c.data.paths.clear(); }, "data.paths is empty"},
      {[](SessionConfig& c) { c.data.loss = "other"; },
       "data.loss is \"other\""},
      {[](SessionConfig& c) { c.data.max_sample_tokens = 65; },
       "data.max_sample_tokens is 65, expected at most micro_batch_tokens = "
       "64"},
      {[](SessionConfig& c) { c.held_out_paths = {""}; },
       "held_out_paths holds an empty path"},
      {[](SessionConfig& c) { c.held_out_fraction = 1; },
       "held_out_fraction is 1"},
      {[](SessionConfig& c) { c.max_held_out_tokens = 0; },
       "max_held_out_tokens is 0, expected 1 or more"},
      {[](SessionConfig& c) { c.lora_rank = 65537; },
       "lora_rank is 65537, expected 1 to 65536"},
      {[](SessionConfig& c) { c.micro_batch_tokens = 9000000000000; },
       "micro_batch_tokens is 9000000000000, expected 1 to 16777216"},
      {[](SessionConfig& c) { c.grad_accum_steps = 9000000000000000000; },
       "grad_accum_steps is 9000000000000000000, expected 1 to 1048576"},
      {[](SessionConfig& c) { c.num_threads = 1025; },
       "num_threads is 1025, expected 0 to 1024"}};
  test::ExpectRefused(config_, refusals);
}

}  // namespace
}  // namespace espalier
