#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"

#include "espalier/io/llama2c_convert.h"
#include "espalier/tools/commands.h"

namespace espalier::tools {

namespace {

struct ConvertFlags {
  std::string model;
  std::string tokenizer;
  std::string output;
};

int Run(const ConvertFlags& flags) {
  const absl::Status status =
      ConvertLlama2c(flags.model, flags.tokenizer, flags.output);
  if (!status.ok()) return FailOnFolder("convert-llama2c", status);
  std::printf("checkpoint folder: %s\n", flags.output.c_str());
  return 0;
}

}  // namespace

void AddConvertLlama2c(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ConvertFlags>();
  CLI::App* cmd = app.add_subcommand(
      "convert-llama2c", "Turn a llama2.c checkpoint into a checkpoint folder");
  cmd->add_option("--model", flags->model, "model.bin")->required();
  cmd->add_option("--tokenizer", flags->tokenizer, "tokenizer.bin")->required();
  cmd->add_option("--output", flags->output, "New folder")
      ->required()
      ->check(OutputPath());
  cmd->callback([flags, &exit_code] { exit_code = Run(*flags); });
}

}  // namespace espalier::tools
