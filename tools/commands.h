#ifndef ESPALIER_TOOLS_COMMANDS_H_
#define ESPALIER_TOOLS_COMMANDS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace espalier::tools {

// Exit codes of the command line; exit_code.cc says what they mean, and which
// status leads to which.
inline constexpr int kExitInternal = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitBadInput = 3;
inline constexpr int kExitMemory = 4;
inline constexpr int kExitPeer = 5;
inline constexpr int kExitNumeric = 6;

// Of what checks, reads and writes files; 0 for OK.
int ExitCode(const absl::Status& status);
// Of a training step.
int TrainingExitCode(const absl::Status& status);
// What the codes mean, for --help.
std::string ExitCodeHelp();

// Says on stderr what failed; returns its exit code.
int FailOnFolder(const char* command, const absl::Status& status);
// Of options that name what is written: not empty. What is to be new is looked
// for where it is made.
CLI::Validator OutputPath();
// Prints to stdout and returns 0.
int Print(const absl::StatusOr<std::string>& text);

// Each adds a subcommand that leaves its exit code in `exit_code`.
void AddFinetune(CLI::App& app, int& exit_code);
void AddData(CLI::App& app, int& exit_code);
void AddDemo(CLI::App& app, int& exit_code);
void AddConvert(CLI::App& app, int& exit_code);
void AddConvertLlama2c(CLI::App& app, int& exit_code);
void AddInspect(CLI::App& app, int& exit_code);
void AddVerify(CLI::App& app, int& exit_code);
void AddTokenize(CLI::App& app, int& exit_code);
void AddRender(CLI::App& app, int& exit_code);
void AddShard(CLI::App& app, int& exit_code);
void AddUnshard(CLI::App& app, int& exit_code);

}  // namespace espalier::tools

#endif  // ESPALIER_TOOLS_COMMANDS_H_
