#include "espalier/io/inspect.h"

#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"

#include "espalier/tools/commands.h"

namespace espalier::tools {

namespace {

struct InspectFlags {
  std::string dir;
  bool json = false;
};

int Run(const InspectFlags& flags) {
  const auto report = InspectCheckpoint(flags.dir);
  if (!report.ok()) return FailOnFolder("inspect", report.status());
  return Print(flags.json ? WriteJson(ToJson(*report)) : ToText(*report));
}

}  // namespace

void AddInspect(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* cmd = app.add_subcommand(
      "inspect", "Show what a checkpoint folder holds; reads headers only");
  cmd->add_option("dir", flags->dir, "Folder with safetensors")->required();
  cmd->add_flag("--json", flags->json, "For machines");
  cmd->callback([flags, &exit_code] { exit_code = Run(*flags); });
}

}  // namespace espalier::tools
