#include "espalier/io/inspect.h"

#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"

#include "espalier/tools/commands.h"
#include "espalier/tools/remote.h"

namespace espalier::tools {

namespace {

struct InspectFlags {
  std::string dir;
  bool json = false;
  RemotePaths remote;
};

int Run(InspectFlags& flags) {
  auto folder = flags.remote.Open(flags.dir);
  if (!folder.ok()) return FailOnFolder("inspect", folder.status());
  const auto report = InspectCheckpoint(*std::move(folder));
  if (!report.ok()) return FailOnFolder("inspect", report.status());
  return Print(flags.json ? WriteJson(ToJson(*report)) : ToText(*report));
}

}  // namespace

void AddInspect(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* cmd = app.add_subcommand(
      "inspect", "Show what a checkpoint folder holds; reads headers only");
  cmd->add_option("dir", flags->dir,
                  "Folder with safetensors, or s3://bucket/prefix")
      ->required();
  cmd->add_flag("--json", flags->json, "For machines");
  flags->remote.AddFlags(cmd);
  cmd->callback([flags, &exit_code] {
    exit_code = Run(*flags);
    flags->remote.ShowAccount();
  });
}

}  // namespace espalier::tools
