#ifndef ESPALIER_TESTS_CLI_COMMAND_H_
#define ESPALIER_TESTS_CLI_COMMAND_H_

#include <string>
#include <vector>

#include "espalier/io/json.h"

namespace espalier::test {

struct CommandOptions {
  std::string input;         // of standard input
  std::string out = "";      // file for standard output; "" is kept in memory
  std::vector<int> closed;   // standard streams that are closed
  std::string limits;        // of the shell: "ulimit -n 64"
  int kill_after_lines = 0;  // SIGKILL when so many lines were printed
};

struct CommandResult {
  int exit_code = -1;  // minus the signal that ended it
  std::string out;
  std::string err;
};

// Runs the built espalier with a bare environment and waits for its end.
CommandResult Espalier(const std::vector<std::string>& arguments,
                       const CommandOptions& options = {});

// What a run with --json printed, after exit code 0; null, with a failure of
// the test, otherwise.
JsonValue EspalierJson(std::vector<std::string> arguments);

}  // namespace espalier::test

#endif  // ESPALIER_TESTS_CLI_COMMAND_H_
