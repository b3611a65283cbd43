#include "espalier/io/verify.h"

#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"

#include "espalier/tools/commands.h"

namespace espalier::tools {

namespace {

struct VerifyFlags {
  std::string dir;
  VerifyOptions options;
  bool make_manifest = false;
  bool json = false;
};

int Run(VerifyFlags& flags) {
  VerifyOptions& options = flags.options;
  if (flags.make_manifest && options.write_manifest.empty()) {
    options.write_manifest = flags.dir + "/" + kManifestName;
  }
  const auto report = VerifyCheckpoint(flags.dir, options);
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
  cmd->add_option("dir", flags->dir, "Folder with safetensors")->required();
  cmd->add_flag("--full", flags->options.full, "Read every byte");
  cmd->add_option("--manifest", flags->options.manifest,
                  "Compare with this manifest (default: the folder's own)");
  cmd->add_flag("--write-manifest", flags->make_manifest,
                "Write espalier-manifest.json into the folder");
  cmd->add_option("--manifest-output", flags->options.write_manifest,
                  "Write the manifest to this file instead");
  cmd->add_flag("--json", flags->json, "For machines");
  cmd->callback([flags, &exit_code] { exit_code = Run(*flags); });
}

}  // namespace espalier::tools
