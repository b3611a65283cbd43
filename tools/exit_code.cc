#include <cstdio>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"

#include "espalier/tools/commands.h"
#include "espalier/tools/flag_names.h"

namespace espalier::tools {

namespace {

struct Meaning {
  int code;
  const char* text;
};
// README.md has the same list.
constexpr Meaning kMeanings[] = {
    {0, "in order"},
    {kExitInternal, "a fault of espalier itself; please report it"},
    {kExitUsage, "flags that do not suit"},
    {kExitBadInput,
     "a file or folder that is missing, broken or in the way, or output that "
     "cannot be written"},
    {kExitMemory, "short of disk space, memory or file handles"},
    {kExitPeer, "a store or another machine does not answer"},
    {kExitNumeric, "training met numbers that are not finite"}};

struct Row {
  absl::StatusCode status;
  int files;     // of checks, and of reading and writing
  int training;  // of steps
};
constexpr Row kRows[] = {
    {absl::StatusCode::kOk, 0, 0},
    {absl::StatusCode::kCancelled, kExitInternal, kExitInternal},
    {absl::StatusCode::kUnknown, kExitBadInput, kExitBadInput},
    {absl::StatusCode::kInvalidArgument, kExitBadInput, kExitBadInput},
    {absl::StatusCode::kDeadlineExceeded, kExitPeer, kExitPeer},
    {absl::StatusCode::kNotFound, kExitBadInput, kExitBadInput},
    {absl::StatusCode::kAlreadyExists, kExitBadInput, kExitBadInput},
    {absl::StatusCode::kPermissionDenied, kExitBadInput, kExitBadInput},
    {absl::StatusCode::kUnauthenticated, kExitBadInput, kExitBadInput},
    {absl::StatusCode::kResourceExhausted, kExitMemory, kExitMemory},
    // Of files: a folder where a file should be, another run's folder.
    {absl::StatusCode::kFailedPrecondition, kExitBadInput, kExitNumeric},
    {absl::StatusCode::kAborted, kExitBadInput, kExitPeer},
    // What io says of settings that do not suit.
    {absl::StatusCode::kOutOfRange, kExitUsage, kExitUsage},
    {absl::StatusCode::kUnimplemented, kExitBadInput, kExitBadInput},
    {absl::StatusCode::kInternal, kExitInternal, kExitInternal},
    {absl::StatusCode::kUnavailable, kExitPeer, kExitPeer},
    {absl::StatusCode::kDataLoss, kExitBadInput, kExitBadInput}};

const Row* RowOf(const absl::Status& status) {
  for (const Row& row : kRows) {
    if (row.status == status.code()) return &row;
  }
  return nullptr;
}

}  // namespace

int ExitCode(const absl::Status& status) {
  const Row* row = RowOf(status);
  return row == nullptr ? kExitInternal : row->files;
}

int TrainingExitCode(const absl::Status& status) {
  const Row* row = RowOf(status);
  return row == nullptr ? kExitInternal : row->training;
}

std::string ExitCodeHelp() {
  std::string text = "Exit codes:";
  for (const Meaning& meaning : kMeanings) {
    absl::StrAppend(&text, "\n  ", meaning.code, "  ", meaning.text);
  }
  return text;
}

int FailOnFolder(const char* command, const absl::Status& status) {
  std::fprintf(stderr, "espalier %s: %s\n", command,
               WithFlagNames(status.message()).c_str());
  return ExitCode(status);
}

CLI::Validator OutputPath() {
  return CLI::Validator(
      [](std::string& path) {
        return path.empty() ? std::string("is empty, expected a path")
                            : std::string();
      },
      "");
}

int Print(const absl::StatusOr<std::string>& text) {
  if (!text.ok()) return FailOnFolder("print", text.status());
  std::fputs(text->c_str(), stdout);
  return 0;
}

}  // namespace espalier::tools
