#include "espalier/io/shard.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"

#include "espalier/io/units.h"
#include "espalier/tools/commands.h"
#include "espalier/tools/remote.h"
#include "espalier/tools/whole_number.h"

namespace espalier::tools {

namespace {

struct ShardFlags {
  std::string dir;
  std::string out;
  ShardOptions options;
  bool json = false;
  RemotePaths remote;
};

absl::Status ShowProgress(int64_t done, int64_t total) {
  std::fprintf(
      stderr, "\r%3.0f %% of %s",
      total > 0 ? 100.0 * static_cast<double>(done) / static_cast<double>(total)
                : 100.0,
      BytesText(total).c_str());
  if (done >= total) std::fprintf(stderr, "\n");
  return absl::OkStatus();
}

int Report(const char* command, const ShardFlags& flags,
           const absl::StatusOr<ShardReport>& report) {
  if (!report.ok()) return FailOnFolder(command, report.status());
  if (flags.json) return Print(WriteJson(ToJson(*report)));
  std::printf("%s: %lld tensors, %s in %lld files%s", report->out.c_str(),
              static_cast<long long>(report->num_tensors),
              BytesText(report->total_bytes).c_str(),
              static_cast<long long>(report->num_files),
              flags.options.dry_run ? " would be written" : "");
  if (report->num_taken_up > 0) {
    std::printf(", %lld of them from an earlier run",
                static_cast<long long>(report->num_taken_up));
  }
  std::printf("\n");
  for (const std::string& name : report->left_out) {
    std::printf("left out: %s\n", name.c_str());
  }
  return 0;
}

int RunShard(ShardFlags& flags) {
  if (isatty(STDERR_FILENO) != 0) flags.options.on_file = ShowProgress;
  const auto folder = flags.remote.Open(flags.dir);
  if (!folder.ok()) return FailOnFolder("shard", folder.status());
  return Report("shard", flags,
                ShardCheckpoint(*folder, flags.out, flags.options));
}

int RunUnshard(ShardFlags& flags) {
  if (isatty(STDERR_FILENO) != 0) flags.options.on_file = ShowProgress;
  return Report("unshard", flags,
                UnshardCheckpoint(flags.dir, flags.out, flags.options));
}

void AddCommon(CLI::App* cmd, ShardFlags& flags) {
  cmd->add_option("--out", flags.out, "New folder")
      ->required()
      ->check(OutputPath());
  cmd->add_flag("--resume", flags.options.resume,
                "Take up what an earlier run left in OUT.partial");
  cmd->add_flag("--dry-run", flags.options.dry_run,
                "Plan all of it, write nothing");
  cmd->add_flag("--json", flags.json, "For machines");
}

}  // namespace

void AddShard(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ShardFlags>();
  CLI::App* cmd = app.add_subcommand(
      "shard", "Split a checkpoint folder by the axes of a mesh");
  cmd->add_option("dir", flags->dir, "Folder with safetensors")->required();
  ShardMesh& mesh = flags->options.mesh;
  const CLI::Validator axis = WholeNumber(1, kMaxMeshAxis);
  cmd->add_option("--tp", mesh.tp, "Tensor parallel: cuts all but experts")
      ->check(axis)
      ->capture_default_str();
  cmd->add_option("--ep", mesh.ep, "Expert parallel: deals out experts")
      ->check(axis)
      ->capture_default_str();
  cmd->add_option("--etp", mesh.etp, "Tensor parallel inside each expert")
      ->check(axis)
      ->capture_default_str();
  cmd->add_option("--pp", mesh.pp, "Pipeline: stages of whole layers")
      ->check(axis)
      ->capture_default_str();
  cmd->add_option("--max-shard", flags->options.max_shard_bytes,
                  "Largest file, for example 5GB")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->check(WholeNumber(1, std::numeric_limits<int64_t>::max()))
      ->default_str("5GB");
  AddCommon(cmd, *flags);
  flags->remote.AddFlags(cmd);
  cmd->callback([flags, &exit_code] {
    exit_code = RunShard(*flags);
    flags->remote.ShowAccount();
  });
}

void AddUnshard(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ShardFlags>();
  CLI::App* cmd = app.add_subcommand(
      "unshard", "Put a sharded folder together again, byte for byte");
  cmd->add_option("dir", flags->dir, "Folder that espalier shard wrote")
      ->required();
  AddCommon(cmd, *flags);
  cmd->callback([flags, &exit_code] { exit_code = RunUnshard(*flags); });
}

}  // namespace espalier::tools
