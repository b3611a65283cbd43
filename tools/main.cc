#include <cstdio>
#include <exception>
#include <new>

#include "CLI/CLI.hpp"

#include "espalier/tools/commands.h"
#include "espalier/tools/whole_number.h"

namespace {

int Run(int argc, char** argv) {
  CLI::App app{"Espalier: LoRA fine-tuning of sparse and dense models"};
  app.require_subcommand(1);
  app.footer(espalier::tools::ExitCodeHelp());
  int exit_code = 0;
  espalier::tools::AddFinetune(app, exit_code);
  espalier::tools::AddData(app, exit_code);
  espalier::tools::AddDemo(app, exit_code);
  espalier::tools::AddConvert(app, exit_code);
  espalier::tools::AddConvertLlama2c(app, exit_code);
  espalier::tools::AddInspect(app, exit_code);
  espalier::tools::AddVerify(app, exit_code);
  espalier::tools::AddTokenize(app, exit_code);
  espalier::tools::AddRender(app, exit_code);
  espalier::tools::AddShard(app, exit_code);
  espalier::tools::AddUnshard(app, exit_code);
  espalier::tools::CheckWholeNumbers(&app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : espalier::tools::kExitUsage;
  }
  // What was printed may not have arrived, on a full disk for instance.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fprintf(stderr, "espalier: standard output cannot be written\n");
    return exit_code == 0 ? espalier::tools::kExitBadInput : exit_code;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "espalier: memory is exhausted\n");
    return espalier::tools::kExitMemory;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "espalier: %s\n", error.what());
    return espalier::tools::kExitInternal;
  }
}
