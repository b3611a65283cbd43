#include "espalier/train/demo.h"

#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"

#include "espalier/runtime/thread_pool.h"
#include "espalier/tools/commands.h"
#include "espalier/tools/whole_number.h"

namespace espalier::tools {

namespace {

struct DemoFlags {
  std::string output;
  DemoOptions options;
};

int Run(DemoFlags& flags) {
  const int64_t steps = flags.options.pretrain_steps;
  flags.options.on_step = [steps](int64_t step, double loss) {
    if (step % 25 != 0 && step != 1 && step != steps) return;
    std::printf("pre-training step %lld/%lld  loss %.4f\n",
                static_cast<long long>(step), static_cast<long long>(steps),
                loss);
    std::fflush(stdout);
  };
  flags.options.on_removed = [](const std::string& path) {
    std::fprintf(stderr, "removed %s, left by a run that was killed\n",
                 path.c_str());
  };
  const absl::Status status = WriteDemo(flags.output, flags.options);
  if (!status.ok()) return FailOnFolder("demo", status);
  std::printf("demo folder: %s\n", flags.output.c_str());
  return 0;
}

}  // namespace

void AddDemo(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<DemoFlags>();
  CLI::App* cmd = app.add_subcommand(
      "demo", "Make a tiny checkpoint, tokenizer and texts to try things on");
  cmd->add_option("--output", flags->output, "New folder")
      ->required()
      ->check(OutputPath());
  cmd->add_option("--pretrain-steps", flags->options.pretrain_steps,
                  "Steps of training from scratch")
      ->check(WholeNumber(0, 1'000'000))
      ->capture_default_str();
  cmd->add_option("--seed", flags->options.seed, "Of texts and weights")
      ->capture_default_str();
  cmd->add_option("--threads", flags->options.num_threads,
                  "0: all that may be used")
      ->check(WholeNumber(0, ThreadPool::kMaxThreads))
      ->capture_default_str();
  cmd->callback([flags, &exit_code] { exit_code = Run(*flags); });
}

}  // namespace espalier::tools
