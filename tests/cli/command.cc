#include "espalier/tests/cli/command.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"

namespace espalier::test {

namespace {

void KillAfterLines(pid_t child, const std::string& out, int lines) {
  for (;;) {
    const std::string text = ReadFile(out);
    if (std::count(text.begin(), text.end(), '\n') >= lines) break;
    siginfo_t ended = {};
    if (waitid(P_PID, static_cast<id_t>(child), &ended,
               WEXITED | WNOHANG | WNOWAIT) != 0 ||
        ended.si_pid != 0) {
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(child, SIGKILL);
}

}  // namespace

CommandResult Espalier(const std::vector<std::string>& arguments,
                       const CommandOptions& options) {
  const TempDir dir;
  const std::string in = dir.Write("in", options.input);
  const std::string out = options.out.empty() ? dir.Path("out") : options.out;
  const std::string err = dir.Path("err");
  std::vector<std::string> words;
  if (!options.limits.empty()) {
    words = {"/bin/sh", "-c",
             absl::StrCat(options.limits, " && exec \"$0\" \"$@\"")};
  }
  words.emplace_back(ESPALIER_BINARY);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string home = absl::StrCat("HOME=", dir.path());
  std::vector<std::string> environment = {home, "PATH=/usr/bin:/bin"};
  for (const char* name : {"ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"}) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
    if (value != nullptr) {
      environment.push_back(absl::StrCat(name, "=", value));
    }
  }
  std::vector<char*> envp;
  envp.reserve(environment.size() + 1);
  for (std::string& item : environment) envp.push_back(item.data());
  envp.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, in.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT,
                                   0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT,
                                   0600);
  for (const int stream : options.closed) {
    posix_spawn_file_actions_addclose(&actions, stream);
  }
  CommandResult result;
  pid_t child = 0;
  const int failed =
      posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    ADD_FAILURE() << "cannot start " << argv[0] << ": error " << failed;
    return result;
  }
  if (options.kill_after_lines > 0) {
    KillAfterLines(child, out, options.kill_after_lines);
  }
  int status = 0;
  waitpid(child, &status, 0);
  result.exit_code =
      WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  if (options.out.empty()) result.out = ReadFile(out);
  result.err = ReadFile(err);
  return result;
}

JsonValue EspalierJson(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const CommandResult result = Espalier(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const absl::StatusOr<JsonValue> json = ParseJsonText(result.out);
  EXPECT_TRUE(json.ok()) << json.status() << "\n" << result.out;
  return json.ok() ? *json : JsonValue();
}

}  // namespace espalier::test
