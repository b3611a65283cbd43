#include "espalier/train/session.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/safetensors_reader.h"
#include "espalier/io/safetensors_writer.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/rng.h"
#include "espalier/train/demo.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

// An emulator is a hundred times slower: fewer steps.
#if defined(ESPALIER_EMULATED)
constexpr int64_t kPretrainSteps = 1;
constexpr int64_t kSteps = 2;
constexpr int64_t kGradAccumSteps = 1;
constexpr int kThreads[] = {2};
#else
constexpr int64_t kPretrainSteps = 12;
constexpr int64_t kSteps = 6;
constexpr int64_t kGradAccumSteps = 2;
constexpr int kThreads[] = {2, 3};
#endif

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// One demo folder for all tests of the process.
class SessionTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string pattern = ::testing::TempDir() + "/session.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = new std::string(pattern);
    DemoOptions options;
    options.pretrain_steps = kPretrainSteps;
    const absl::Status made = WriteDemo(*dir_ + "/demo", options);
    ASSERT_TRUE(made.ok()) << made;
  }
  static void TearDownTestSuite() {
    std::filesystem::remove_all(*dir_);
    delete dir_;
  }

  static SessionConfig Config() {
    SessionConfig config;
    config.model_dir = *dir_ + "/demo/model";
    config.data.paths = {*dir_ + "/demo/finetune.txt"};
    config.dtype = "f32";
    config.lora_rank = 4;
    config.learning_rate = 5e-3;
    config.max_steps = kSteps;
    config.data.max_sample_tokens = 128;
    config.micro_batch_tokens = 256;
    config.grad_accum_steps = kGradAccumSteps;
    return config;
  }
  // With a model folder of its own.
  static SessionConfig ConfigOfCopy(const std::string& name) {
    SessionConfig config = Config();
    config.model_dir = *dir_ + "/" + name;
    std::filesystem::copy(*dir_ + "/demo/model", config.model_dir,
                          std::filesystem::copy_options::recursive);
    return config;
  }

  // NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): a suite's
  static const std::string* dir_;
};
const std::string* SessionTest::dir_ = nullptr;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

struct Curve {
  std::vector<double> losses;
  double held_out_before = 0;
  double held_out_after = 0;
};

Curve Train(const SessionConfig& config, const std::string& adapter_dir) {
  Curve run;
  auto session = Session::Open(config);
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return run;
  run.held_out_before = (*session)->Evaluate()->loss;
  for (int64_t i = 0; i < config.max_steps; ++i) {
    const auto step = (*session)->Step();
    EXPECT_TRUE(step.ok()) << step.status();
    if (!step.ok()) return run;
    EXPECT_EQ(step->step, i + 1);
    EXPECT_GT(step->num_trained_tokens, 0);
    run.losses.push_back(step->loss);
  }
  run.held_out_after = (*session)->Evaluate()->loss;
  const absl::Status saved = (*session)->SaveAdapter(adapter_dir);
  EXPECT_TRUE(saved.ok()) << saved;
  return run;
}

TEST_F(SessionTest, HeldOutLossFallsAndThreadsDoNotChangeOneBit) {
  SessionConfig config = Config();
  config.num_threads = 1;
  const Curve one = Train(config, *dir_ + "/one");
  EXPECT_LT(one.held_out_after, one.held_out_before - 0.02);
  const std::string weights =
      ReadFile(*dir_ + "/one/adapter_model.safetensors");
  ASSERT_GT(weights.size(), 1000u);
  for (const int threads : kThreads) {
    config.num_threads = threads;
    const std::string out = *dir_ + "/t" + std::to_string(threads);
    const Curve run = Train(config, out);
    EXPECT_EQ(run.losses, one.losses) << threads;
    EXPECT_EQ(run.held_out_after, one.held_out_after) << threads;
    EXPECT_TRUE(ReadFile(out + "/adapter_model.safetensors") == weights)
        << threads;
  }
}

TEST_F(SessionTest, Bf16FollowsF32) {
  SessionConfig config = Config();
  const Curve f32 = Train(config, *dir_ + "/f32");
  config.dtype = "bf16";
  const Curve bf16 = Train(config, *dir_ + "/bf16");
  ASSERT_EQ(f32.losses.size(), bf16.losses.size());
  for (size_t i = 0; i < f32.losses.size(); ++i) {
    EXPECT_NEAR(bf16.losses[i], f32.losses[i], 0.02) << i;
  }
}

TEST_F(SessionTest, TwoSessionsInOneProcessDoNotMeet) {
  const SessionConfig config = Config();
  auto first = Session::Open(config);
  auto second = Session::Open(config);
  ASSERT_TRUE(first.ok() && second.ok());
  for (int i = 0; i < 2; ++i) {
    const auto a = (*first)->Step();
    const auto b = (*second)->Step();
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->loss, b->loss);
  }
  first->reset();
  EXPECT_TRUE((*second)->Step().ok());
}

TEST_F(SessionTest, RefusalsNameTheField) {
  const std::vector<std::pair<void (*)(SessionConfig&), std::string>> cases = {
      {[](SessionConfig& c) { c.lora_rank = 0; }, "lora_rank is 0"},
      {[](SessionConfig& c) { c.lora_rank = 65536; },
       "lora_rank is 65536, expected 1 to "},
      {[](SessionConfig& c) { c.dtype = "fp8"; }, "dtype is \"fp8\""},
      {[](SessionConfig& c) { c.learning_rate = -1; }, "learning_rate is -1"},
      {[](SessionConfig& c) { c.max_grad_norm = -1; }, "max_grad_norm is -1"},
      {[](SessionConfig& c) { c.max_grad_norm = NAN; }, "max_grad_norm is nan"},
      {[](SessionConfig& c) { c.lora_alpha = INFINITY; }, "lora_alpha is inf"},
      {[](SessionConfig& c) { c.data.max_sample_tokens = 9999; },
       "data.max_sample_tokens is 9999"},
      {[](SessionConfig& c) { c.model_dir += "-none"; }, "config.json"},
      {[](SessionConfig& c) { c.data.paths[0] += "-none"; },
       "finetune.txt-none"},
      {[](SessionConfig& c) { c.target_modules = {"w9"}; }, "\"w9\""}};
  for (const auto& [change, text] : cases) {
    SessionConfig config = Config();
    change(config);
    const auto session = Session::Open(config);
    EXPECT_FALSE(session.ok()) << text;
    EXPECT_THAT(std::string(session.status().message()), HasSubstr(text));
  }
}

TEST_F(SessionTest, AfterAFailureEveryCallReturnsTheSameStatus) {
  SessionConfig config = Config();
  config.learning_rate = 1e30;
  for (const bool in_step : {true, false}) {
    auto session = Session::Open(config);
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_FALSE((*session)->SaveAdapter(config.model_dir).ok());
    const auto step = (*session)->Step();
    ASSERT_TRUE(step.ok()) << step.status();
    ASSERT_GT(step->learning_rate, 1e20);
    const absl::Status failed =
        in_step ? (*session)->Step().status() : (*session)->Evaluate().status();
    EXPECT_EQ(failed.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(
        std::string(failed.message()),
        HasSubstr(in_step ? "at step 2, micro-batch 0" : "held-out loss is "));
    EXPECT_EQ((*session)->Evaluate().status(), failed);
    EXPECT_EQ((*session)->Step().status(), failed);
    EXPECT_EQ((*session)->SaveAdapter(*dir_ + "/never"), failed);
    EXPECT_FALSE(std::filesystem::exists(*dir_ + "/never"));
  }
}

TEST_F(SessionTest, AnOutputIsOfOneSessionAtATime) {
  SessionConfig config = Config();
  config.output_dir = *dir_ + "/places/adapter";
  auto first = Session::Open(config);
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = Session::Open(config).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(second.message(),
              HasSubstr("output_dir: " + config.output_dir + ": another run"));
  SessionConfig other = config;
  other.output_dir += "2";
  EXPECT_TRUE(Session::Open(other).ok());
  first->reset();
  first = Session::Open(config);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE((*first)->SaveAdapter(config.output_dir).ok());
  first->reset();
  int64_t entries = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(*dir_ + "/places")) {
    EXPECT_EQ(entry.path().string(), config.output_dir);
    ++entries;
  }
  EXPECT_EQ(entries, 1);
}

// Case F11: what was trained is in the file, module by module.
TEST_F(SessionTest, TheSavedAdapterIsWholeAndTrained) {
  SessionConfig config = Config();
  config.output_dir = *dir_ + "/vanished/whole";
  auto session = Session::Open(config);
  ASSERT_TRUE(session.ok()) << session.status();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE((*session)->Step().ok());
  // Case K2: the folder above goes while it trains.
  std::filesystem::remove_all(*dir_ + "/vanished");
  ASSERT_EQ((*session)->SaveAdapter(config.output_dir), absl::OkStatus());
  const auto file =
      SafetensorsFile::Open(config.output_dir + "/adapter_model.safetensors");
  const auto base =
      SafetensorsFile::Open(config.model_dir + "/model.safetensors");
  ASSERT_TRUE(file.ok() && base.ok());
  const auto context = Context::Create(ContextOptions());
  size_t num_modules = 0;
  for (const SafetensorsEntry& weight : base->entries()) {
    const size_t end = weight.name.find("_proj.weight");
    if (end == std::string::npos) continue;
    ++num_modules;
    const std::string module =
        "base_model.model." + weight.name.substr(0, end) + "_proj.";
    const SafetensorsEntry* a = file->Find(module + "lora_A.weight");
    const SafetensorsEntry* b = file->Find(module + "lora_B.weight");
    ASSERT_TRUE(a != nullptr && b != nullptr) << module;
    EXPECT_THAT(a->shape, ::testing::ElementsAre(4, weight.shape[1]));
    EXPECT_THAT(b->shape, ::testing::ElementsAre(weight.shape[0], 4));
    const auto values = file->Load((*context)->cpu(), *b);
    ASSERT_TRUE(values.ok());
    const std::vector<double> doubles = ToDoubles(*values);
    EXPECT_TRUE(std::any_of(doubles.begin(), doubles.end(), [](double value) {
      return value != 0;
    })) << module;
  }
  EXPECT_GT(num_modules, 7u);
  EXPECT_EQ(file->entries().size(), 2 * num_modules);
}

// In a child, on a disk of 8 KB of its own. -1: none can be mounted here.
int ExitCodeOnASmallDisk(const std::string& mount_point,
                         const std::function<int()>& run) {
  const std::string ids = "0 " + std::to_string(getuid()) + " 1";
  const std::string groups = "0 " + std::to_string(getgid()) + " 1";
  constexpr int kNoDisk = 99;
  const pid_t child = fork();
  if (child == 0) {
    const auto write_map = [](const char* path, const std::string& text) {
      std::ofstream(path) << text;
    };
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(kNoDisk);
    write_map("/proc/self/uid_map", ids);
    write_map("/proc/self/setgroups", "deny");
    write_map("/proc/self/gid_map", groups);
    if (mount("none", mount_point.c_str(), "tmpfs", 0, "size=8k") != 0) {
      _exit(kNoDisk);
    }
    _exit(run());
  }
  int status = 0;
  waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
  return code == kNoDisk ? -1 : code;
}

TEST_F(SessionTest, AnAdapterThatDoesNotFitTheDiskIsRefusedAtOnce) {
#if defined(ESPALIER_TSAN)
  GTEST_SKIP() << "threads of a forked child";
#endif
  SessionConfig config = Config();
  const std::string disk = *dir_ + "/disk";
  std::filesystem::create_directory(disk);
  config.output_dir = disk + "/adapter";
  const int code = ExitCodeOnASmallDisk(disk, [&] {
    const absl::Status status = Session::Open(config).status();
    const std::string message(status.message());
    if (status.code() != absl::StatusCode::kResourceExhausted) return 1;
    if (message.find("output_dir: cannot write " + config.output_dir) != 0) {
      return 2;
    }
    // The rehearsal's folder and the lock are gone.
    return std::filesystem::is_empty(disk) ? 0 : 3;
  });
  if (code == -1) GTEST_SKIP() << "no disk can be mounted here";
  EXPECT_EQ(code, 0);
}

TEST_F(SessionTest, AModelFileThatShrinksIsAnErrorAndNoSignal) {
  const SessionConfig config = ConfigOfCopy("shrinks");
  const std::string weights = config.model_dir + "/model.safetensors";
  auto session = Session::Open(config);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE((*session)->Step().ok());
  std::filesystem::resize_file(weights, 4096);
  const absl::Status step = (*session)->Step().status();
  EXPECT_EQ(step.code(), absl::StatusCode::kDataLoss) << step;
  EXPECT_THAT(step.message(), HasSubstr(weights + ": changed"));
  EXPECT_THAT(step.message(), HasSubstr(": 4096 bytes, expected "));
  EXPECT_EQ((*session)->Evaluate().status(), step);
  // What was trained is not lost.
  EXPECT_EQ((*session)->SaveAdapter(*dir_ + "/shrunk_adapter"),
            absl::OkStatus());
}

// The pages of a file that was replaced or removed are still there.
TEST_F(SessionTest, AModelFileThatIsReplacedIsReadOn) {
  const SessionConfig config = ConfigOfCopy("replaced");
  const std::string weights = config.model_dir + "/model.safetensors";
  auto session = Session::Open(config);
  auto plain = Session::Open(Config());
  ASSERT_TRUE(session.ok() && plain.ok());
  std::ofstream(weights + ".new") << "x";
  std::filesystem::rename(weights + ".new", weights);
  EXPECT_EQ((*session)->Step()->loss, (*plain)->Step()->loss);
  std::filesystem::remove(weights);
  EXPECT_EQ((*session)->Step()->loss, (*plain)->Step()->loss);
}

// Case F6: a tied head that is stored with other values than the embedding is
// neither taken nor passed over.
TEST_F(SessionTest, TiedHeadWithOtherValuesIsRefused) {
  const SessionConfig config = ConfigOfCopy("tied");
  const std::string path = config.model_dir + "/model.safetensors";
  const auto context = Context::Create(ContextOptions());
  ASSERT_TRUE(context.ok());
  Device& device = (*context)->cpu();
  const auto file = SafetensorsFile::Open(path, ReadMode::kRead);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<NamedTensor> tensors;
  for (const SafetensorsEntry& entry : file->entries()) {
    auto tensor = file->Load(device, entry);
    ASSERT_TRUE(tensor.ok());
    tensors.push_back({entry.name, *tensor});
    if (entry.name != "model.embed_tokens.weight") continue;
    auto head = file->Load(device, entry);
    ASSERT_TRUE(head.ok());
    tensors.push_back({"lm_head.weight", *head});
  }
  ASSERT_TRUE(WriteSafetensors(path, tensors).ok());
  EXPECT_TRUE(Session::Open(config).ok());
  for (NamedTensor& each : tensors) {
    if (each.name != "lm_head.weight") continue;
    FillNormal(each.tensor, Rng{1, 2}, 0, 1);
  }
  ASSERT_TRUE(WriteSafetensors(path, tensors).ok());
  const absl::Status refused = Session::Open(config).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("lm_head.weight"));
}

}  // namespace
}  // namespace espalier
