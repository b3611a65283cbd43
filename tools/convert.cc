#include "espalier/io/convert.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/json.h"
#include "espalier/tools/commands.h"
#include "espalier/tools/remote.h"
#include "espalier/tools/whole_number.h"

namespace espalier::tools {

namespace {

struct ConvertFlags {
  std::string model;
  std::string output;
  std::string to = "keep";
  std::string experts = "keep";
  ConvertOptions options;
  bool json = false;
  RemotePaths remote;
};

JsonValue ToJson(const ConvertReport& report, const std::string& output) {
  JsonValue::Array shards;
  for (const ConvertReport::Shard& shard : report.shards) {
    shards.push_back(JsonValue::Object{{"bytes", shard.data_bytes},
                                       {"file", shard.file},
                                       {"tensors", shard.num_tensors}});
  }
  return JsonValue::Object{
      {"bytes", report.total_bytes},
      {"bytes_resumed", report.resumed_bytes},
      {"notes", JsonValue::Array(report.notes.begin(), report.notes.end())},
      {"num_cast", report.num_cast},
      {"num_copied", report.num_copied},
      {"num_decoded", report.num_decoded},
      {"num_packed", report.num_packed},
      {"num_shards", report.num_shards},
      {"output", output},
      {"shards", std::move(shards)}};
}

void ShowProgress(int64_t done, int64_t total) {
  std::fprintf(stderr, "\r%" PRId64 " of %" PRId64 " MB", done / 1000000,
               total / 1000000);
  if (done == total) std::fputc('\n', stderr);
}

absl::StatusOr<ConvertReport> Convert(ConvertFlags& flags) {
  if (absl::EndsWith(flags.model, ".gguf")) {
    const auto file = flags.remote.Local(flags.model);
    if (!file.ok()) return file.status();
    return ConvertCheckpoint(*file, flags.output, flags.options);
  }
  auto folder = flags.remote.Open(flags.model);
  if (!folder.ok()) return folder.status();
  return ConvertCheckpoint(*std::move(folder), flags.output, flags.options);
}

int Run(ConvertFlags& flags) {
  const auto to = ParseConvertTarget(flags.to);
  const auto experts = ParseExpertTarget(flags.experts);
  for (const auto& [flag, status] :
       {std::pair("--to", to.status()), {"--experts", experts.status()}}) {
    if (status.ok()) continue;
    FailOnFolder("convert",
                 absl::Status(status.code(),
                              absl::StrCat(flag, " is ", status.message())));
    return kExitUsage;
  }
  flags.options.to = *to;
  flags.options.experts = *experts;
  if (!flags.json && isatty(STDERR_FILENO) != 0) {
    flags.options.progress = ShowProgress;
  }
  const auto report = Convert(flags);
  if (!report.ok()) return FailOnFolder("convert", report.status());
  if (flags.json) return Print(WriteJson(ToJson(*report, flags.output)));
  std::printf("%s: %" PRId64 " bytes in %" PRId64 " shards%s\n",
              flags.output.c_str(), report->total_bytes, report->num_shards,
              flags.options.dry_run ? " would be written" : "");
  for (const ConvertReport::Shard& shard : report->shards) {
    std::printf("  %s: %" PRId64 " tensors, %" PRId64 " bytes\n",
                shard.file.c_str(), shard.num_tensors, shard.data_bytes);
  }
  std::printf("weights: %" PRId64 " copied, %" PRId64 " cast, %" PRId64
              " packed, %" PRId64 " decoded\n",
              report->num_copied, report->num_cast, report->num_packed,
              report->num_decoded);
  for (const std::string& note : report->notes) {
    std::printf("note: %s\n", note.c_str());
  }
  return 0;
}

}  // namespace

void AddConvert(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ConvertFlags>();
  CLI::App* cmd = app.add_subcommand(
      "convert",
      "Write a checkpoint in another format: dtype, packed, expert layout, "
      "from GGUF");
  cmd->add_option("--model", flags->model,
                  "Checkpoint folder or .gguf file, here or s3://bucket/prefix")
      ->required();
  cmd->add_option("--output", flags->output, "New folder")
      ->required()
      ->check(OutputPath());
  cmd->add_option("--to", flags->to, "keep, f32, bf16, f16, fp8, int4 or mxfp4")
      ->capture_default_str();
  cmd->add_option("--experts", flags->experts, "keep, stacked or separate")
      ->capture_default_str();
  cmd->add_option("--int4-group", flags->options.int4_group,
                  "Columns that share a scale: 32, 64 or 128")
      ->capture_default_str();
  cmd->add_option("--only", flags->options.only,
                  "Weights to pack, * stands for any text (default: the linear "
                  "projections)");
  cmd->add_option("--max-shard", flags->options.max_shard_bytes,
                  "Largest file, for example 5GB")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->check(WholeNumber(1, std::numeric_limits<int64_t>::max()))
      ->default_str("5GB");
  cmd->add_flag("--resume", flags->options.resume,
                "Go on where a killed run stopped");
  cmd->add_flag("--dry-run", flags->options.dry_run,
                "Show what would be written; write nothing");
  cmd->add_flag("--allow-mismatch", flags->options.allow_mismatch,
                "Convert although tensors are not those of config.json; "
                "prints what differs");
  cmd->add_flag("--json", flags->json, "For machines");
  flags->remote.AddFlags(cmd);
  cmd->callback([flags, &exit_code] {
    exit_code = Run(*flags);
    flags->remote.ShowAccount();
  });
}

}  // namespace espalier::tools
