#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"

#include "espalier/io/data_stream.h"
#include "espalier/runtime/thread_pool.h"
#include "espalier/tools/commands.h"
#include "espalier/tools/data_flags.h"
#include "espalier/tools/flag_names.h"
#include "espalier/tools/remote.h"
#include "espalier/tools/whole_number.h"
#include "espalier/train/session.h"

namespace espalier::tools {

namespace {

struct FinetuneFlags {
  SessionConfig config;
  RemotePaths remote;
};

// One line per step; on a terminal it overwrites itself.
class Progress {
 public:
  explicit Progress(int64_t max_steps)
      : max_steps_(max_steps), terminal_(isatty(STDOUT_FILENO) != 0) {}

  void Show(const StepResult& step, int64_t peak_bytes) {
    seconds_ += step.seconds;
    tokens_ += step.num_trained_tokens;
    const double per_step = seconds_ / static_cast<double>(step.step);
    const bool last = step.step == max_steps_;
    if (!terminal_ && !last && step.step % 10 != 1) return;
    std::printf(
        "%sstep %lld/%lld  loss %.4f  lr %.2e  grad %.3f  %.0f tokens/s  "
        "%.0f MiB  eta %.0f s%s",
        terminal_ ? "\r\033[K" : "", static_cast<long long>(step.step),
        static_cast<long long>(max_steps_), step.loss, step.learning_rate,
        step.grad_norm, static_cast<double>(tokens_) / seconds_,
        static_cast<double>(peak_bytes) / (1 << 20),
        per_step * static_cast<double>(max_steps_ - step.step),
        terminal_ && !last ? "" : "\n");
    std::fflush(stdout);
  }

 private:
  const int64_t max_steps_;
  const bool terminal_;
  double seconds_ = 0;
  int64_t tokens_ = 0;
};

absl::Status ShowHeldOut(Session& session, const char* when) {
  const auto held_out = session.Evaluate();
  if (!held_out.ok()) return held_out.status();
  if (held_out->num_tokens == 0) return absl::OkStatus();
  std::printf("held-out loss %s: %.4f (%lld tokens, %lld samples)\n", when,
              held_out->loss, static_cast<long long>(held_out->num_tokens),
              static_cast<long long>(held_out->num_samples));
  return absl::OkStatus();
}

struct Done {
  int64_t num_steps = 0;
  int64_t num_tokens = 0;
  int64_t num_trained_tokens = 0;
};

absl::Status TrainSteps(Session& session, int64_t max_steps, Done* done) {
  Progress progress(max_steps);
  while (done->num_steps < max_steps) {
    const auto step = session.Step();
    if (!step.ok()) return step.status();
    ++done->num_steps;
    done->num_tokens += step->num_tokens;
    done->num_trained_tokens += step->num_trained_tokens;
    progress.Show(*step, session.peak_bytes());
  }
  return absl::OkStatus();
}

absl::Status Train(Session& session, const SessionConfig& config) {
  absl::Status status = ShowHeldOut(session, "before");
  if (!status.ok()) return status;
  Done done;
  status = TrainSteps(session, config.max_steps, &done);
  std::printf("trained on: %lld tokens kept (%lld trained) in %lld steps\n",
              static_cast<long long>(done.num_tokens),
              static_cast<long long>(done.num_trained_tokens),
              static_cast<long long>(done.num_steps));
  std::printf(
      "read: %s; more of what is kept waits in up to %lld open micro-batches\n",
      ToString(session.data_report()).c_str(),
      static_cast<long long>(DataStreamOptions().max_open_packs));
  if (!status.ok()) {
    // A bad record does not take away what was trained before it.
    if (done.num_steps > 0 && session.SaveAdapter(config.output_dir).ok()) {
      std::printf("adapter after %lld steps: %s\n",
                  static_cast<long long>(done.num_steps),
                  config.output_dir.c_str());
    }
    return status;
  }
  status = ShowHeldOut(session, "after");
  if (!status.ok()) return status;
  status = session.SaveAdapter(config.output_dir);
  if (!status.ok()) return status;
  std::printf("adapter: %s\n", config.output_dir.c_str());
  return absl::OkStatus();
}

// The model becomes a local copy, since training maps it in place; data is read
// when it is needed.
absl::Status OpenRemote(FinetuneFlags& flags) {
  SessionConfig& config = flags.config;
  auto model_dir = flags.remote.Local(config.model_dir);
  if (!model_dir.ok()) return model_dir.status();
  config.model_dir = *std::move(model_dir);
  for (const auto* paths : {&config.data.paths, &config.held_out_paths}) {
    absl::Status status = flags.remote.OpenAll(*paths, &config.data.folders);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

int Run(FinetuneFlags& flags) {
  const absl::Status valid = Validate(flags.config);
  if (!valid.ok()) {
    FailOnFolder("finetune", valid);
    return kExitUsage;
  }
  if (const absl::Status status = OpenRemote(flags); !status.ok()) {
    return FailOnFolder("finetune", status);
  }
  const auto session = Session::Open(flags.config);
  if (!session.ok()) return FailOnFolder("finetune", session.status());
  for (const std::string& line : (*session)->summary()) {
    std::printf("%s\n", WithFlagNames(line).c_str());
  }
  const absl::Status status = Train(**session, flags.config);
  if (status.ok()) return 0;
  FailOnFolder("finetune", status);
  return TrainingExitCode(status);
}

}  // namespace

void AddFinetune(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<FinetuneFlags>();
  SessionConfig& c = flags->config;
  CLI::App* cmd = app.add_subcommand(
      "finetune", "Train a LoRA adapter on a Hugging Face checkpoint folder");
  cmd->add_option("--model", c.model_dir,
                  "Folder with config.json, safetensors, tokenizer.json")
      ->required();
  AddDataFlags(cmd, &c.data);
  AddTrainingDataFlags(cmd, &c.data);
  cmd->add_option("--output", c.output_dir, "New folder for the adapter")
      ->required()
      ->check(OutputPath());
  cmd->add_option("--max-steps", c.max_steps, "Optimizer steps")
      ->capture_default_str();
  cmd->add_option("--dtype", c.dtype, "f32 or bf16")->capture_default_str();
  cmd->add_option("--lora-rank", c.lora_rank, "Rank of the LoRA factors")
      ->check(WholeNumber(1, kMaxLoraRank))
      ->capture_default_str();
  cmd->add_option("--lora-alpha", c.lora_alpha, "Scaling is alpha / rank")
      ->capture_default_str();
  cmd->add_option("--target-modules", c.target_modules,
                  "Module names, or all-linear")
      ->delimiter(',')
      ->capture_default_str();
  cmd->add_option("--lr", c.learning_rate, "Peak learning rate (cosine)")
      ->capture_default_str();
  cmd->add_option("--weight-decay", c.weight_decay, "AdamW weight decay")
      ->capture_default_str();
  cmd->add_option("--warmup-ratio", c.warmup_ratio, "Share of the steps")
      ->capture_default_str();
  cmd->add_option("--max-grad-norm", c.max_grad_norm, "0: no clipping")
      ->capture_default_str();
  cmd->add_option("--micro-batch-tokens", c.micro_batch_tokens,
                  "Token budget of one packed micro-batch")
      ->check(WholeNumber(1, kMaxMicroBatchTokens))
      ->capture_default_str();
  cmd->add_option("--grad-accum-steps", c.grad_accum_steps,
                  "Micro-batches per step")
      ->check(WholeNumber(1, kMaxGradAccumSteps))
      ->capture_default_str();
  auto* held_out_data =
      cmd->add_option("--held-out-data", c.held_out_paths,
                      "Data to evaluate on; may stand several times");
  cmd->add_option("--held-out-fraction", c.held_out_fraction,
                  "Share of the records kept for evaluation")
      ->capture_default_str()
      ->excludes(held_out_data);
  cmd->add_option("--max-held-out-tokens", c.max_held_out_tokens,
                  "Evaluation reads about this many tokens")
      ->capture_default_str();
  cmd->add_option("--seed", c.seed, "Of the adapters and the data order")
      ->capture_default_str();
  cmd->add_option("--threads", c.num_threads, "0: all that may be used")
      ->check(WholeNumber(0, ThreadPool::kMaxThreads))
      ->capture_default_str();
  flags->remote.AddFlags(cmd);
  cmd->callback([flags, &exit_code] {
    exit_code = Run(*flags);
    flags->remote.ShowAccount();
  });
}

}  // namespace espalier::tools
