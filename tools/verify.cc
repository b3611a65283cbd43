#include "espalier/io/verify.h"

#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"

#include "espalier/tools/commands.h"
#include "espalier/tools/remote.h"

namespace espalier::tools {

namespace {

struct VerifyFlags {
  std::string dir;
  VerifyOptions options;
  bool make_manifest = false;
  bool json = false;
  RemotePaths remote;
};

int Run(VerifyFlags& flags) {
  VerifyOptions& options = flags.options;
  if (flags.make_manifest && options.write_manifest.empty()) {
    if (ObjectUrl::Is(flags.dir)) {
      std::fprintf(stderr,
                   "espalier verify: %s cannot be written to; name a file with "
                   "--manifest-output\n",
                   flags.dir.c_str());
      return kExitUsage;
    }
    options.write_manifest = flags.dir + "/" + kManifestName;
  }
  auto folder = flags.remote.Open(flags.dir);
  if (!folder.ok()) return FailOnFolder("verify", folder.status());
  const auto report = VerifyCheckpoint(*std::move(folder), options);
  if (!report.ok()) return FailOnFolder("verify", report.status());
  const int printed =
      Print(flags.json ? WriteJson(ToJson(*report)) : ToText(*report));
  return printed == 0 && !report->ok() ? kExitBadInput : printed;
}

}  // namespace

void AddVerify(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<VerifyFlags>();
  CLI::App* cmd = app.add_subcommand(
      "verify", "Check a checkpoint folder: files, index, config, contents");
  cmd->add_option("dir", flags->dir,
                  "Folder with safetensors, or s3://bucket/prefix")
      ->required();
  cmd->add_flag("--full", flags->options.full, "Read every byte");
  cmd->add_option("--manifest", flags->options.manifest,
                  "Compare with this manifest (default: the folder's own)");
  cmd->add_flag("--write-manifest", flags->make_manifest,
                "Write espalier-manifest.json into the folder");
  cmd->add_option("--manifest-output", flags->options.write_manifest,
                  "Write the manifest to this file instead")
      ->check(OutputPath());
  cmd->add_flag("--json", flags->json, "For machines");
  flags->remote.AddFlags(cmd);
  cmd->callback([flags, &exit_code] {
    exit_code = Run(*flags);
    flags->remote.ShowAccount();
  });
}

}  // namespace espalier::tools
