#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

#include "espalier/io/atomic_file.h"
#include "espalier/io/data_inspect.h"
#include "espalier/io/data_set.h"
#include "espalier/io/token_folder.h"
#include "espalier/tools/chat_flags.h"
#include "espalier/tools/commands.h"
#include "espalier/tools/remote.h"

namespace espalier::tools {

namespace {

struct DataFlags {
  std::string tokenizer_dir;
  DataSetConfig set;
  ChatFlags chat;
  DataInspectOptions inspect;
  std::string long_samples = "split";
  std::string boundary = "blank-line";
  bool skip_bad_records = false;
  bool json = false;
  std::string html_path;
  std::string output_dir;
  RemotePaths remote;
};

int Fail(const char* command, const absl::Status& status) {
  std::fprintf(stderr, "espalier data %s: %s\n", command,
               std::string(status.message()).c_str());
  const int code = ExitCode(status);
  return code == kExitUsage ? kExitBadInput : code;
}

absl::Status Prepare(DataFlags& flags) {
  flags.inspect.long_samples =
      flags.long_samples == "drop"       ? LongSamplePolicy::kDrop
      : flags.long_samples == "truncate" ? LongSamplePolicy::kTruncate
                                         : LongSamplePolicy::kSplit;
  RecordFileOptions& file = flags.set.records.file;
  file.boundary = flags.boundary == "none"        ? TextBoundary::kNone
                  : flags.boundary == "separator" ? TextBoundary::kSeparator
                                                  : TextBoundary::kBlankLine;
  flags.set.chat = flags.chat.Options();
  flags.set.chat_format = flags.chat.format();
  auto paths = flags.remote.Local(flags.set.paths);
  if (!paths.ok()) return paths.status();
  flags.set.paths = *std::move(paths);
  auto tokenizer_dir = flags.remote.Local(flags.tokenizer_dir);
  if (!tokenizer_dir.ok()) return tokenizer_dir.status();
  flags.tokenizer_dir = *std::move(tokenizer_dir);
  return absl::OkStatus();
}

int Inspect(DataFlags& flags) {
  if (const absl::Status status = Prepare(flags); !status.ok()) {
    return Fail("inspect", status);
  }
  const auto set = OpenDataSet(flags.tokenizer_dir, flags.set);
  if (!set.ok()) return Fail("inspect", set.status());
  const auto inspection = InspectData(set->groups, flags.inspect);
  if (!inspection.ok()) return Fail("inspect", inspection.status());
  if (!flags.html_path.empty()) {
    const absl::Status status = WriteFileAtomically(
        flags.html_path, InspectionHtml(*inspection, *set->tokenizer));
    if (!status.ok()) return Fail("inspect", status);
  }
  if (flags.json) {
    const auto text = WriteJson(InspectionJson(*inspection, *set->tokenizer));
    if (!text.ok()) return Fail("inspect", text.status());
    std::printf("%s", text->c_str());
  } else {
    std::printf("%s", InspectionText(*inspection, *set->tokenizer,
                                     isatty(STDOUT_FILENO) != 0)
                          .c_str());
  }
  return inspection->num_bad_records > 0 ? kExitBadInput : 0;
}

int Pack(DataFlags& flags) {
  if (const absl::Status status = Prepare(flags); !status.ok()) {
    return Fail("pack", status);
  }
  const auto set = OpenDataSet(flags.tokenizer_dir, flags.set);
  if (!set.ok()) return Fail("pack", set.status());
  const auto report =
      PackDataSet(*set, flags.output_dir, flags.skip_bad_records);
  if (!report.ok()) return Fail("pack", report.status());
  if (flags.json) {
    JsonValue out;
    out.Set("num_samples", report->num_samples);
    out.Set("num_tokens", report->num_tokens);
    out.Set("num_bad_records", report->num_bad_records);
    std::printf("%s", WriteJson(out)->c_str());
    return 0;
  }
  std::printf("%s: %lld samples, %lld tokens", flags.output_dir.c_str(),
              static_cast<long long>(report->num_samples),
              static_cast<long long>(report->num_tokens));
  if (report->num_bad_records > 0) {
    std::printf("; %lld bad records left out, first: %s",
                static_cast<long long>(report->num_bad_records),
                report->first_bad_record.c_str());
  }
  std::printf("\n");
  return 0;
}

void AddCommon(CLI::App* cmd, DataFlags& f) {
  cmd->add_option("--tokenizer", f.tokenizer_dir,
                  "Folder with the model's tokenizer")
      ->required();
  cmd->add_option("--data", f.set.paths,
                  "JSON lines or array, plain text, or a token folder; may "
                  "stand several times")
      ->required();
  cmd->add_option("--prompt-field", f.set.records.fields.prompt,
                  "Member that holds the prompt, with --completion-field");
  cmd->add_option("--completion-field", f.set.records.fields.completion,
                  "Member that holds the completion");
  cmd->add_option("--boundary", f.boundary,
                  "What separates the documents of plain text")
      ->check(CLI::IsMember({"blank-line", "separator", "none"}))
      ->capture_default_str();
  cmd->add_option("--separator", f.set.records.file.separator,
                  "The line between documents, for --boundary separator");
  cmd->add_flag("--train-prompt", f.set.plain.train_prompt,
                "The same as --loss all");
  f.chat.AddFlags(cmd);
  cmd->add_flag("--json", f.json, "Print JSON");
  f.remote.AddFlags(cmd);
}

}  // namespace

void AddData(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<DataFlags>();
  CLI::App* data = app.add_subcommand("data", "Look at training data, pack it");
  data->require_subcommand(1);

  CLI::App* inspect = data->add_subcommand(
      "inspect",
      "Show what training would see: tokens, weights, totals; exit "
      "code 3 when a record is bad");
  AddCommon(inspect, *flags);
  inspect->add_option("--samples", flags->inspect.num_shown, "Samples to show")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  inspect
      ->add_option("--max-sample-tokens", flags->inspect.max_sample_tokens,
                   "Longer samples are too long")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  inspect
      ->add_option("--long-samples", flags->long_samples,
                   "What becomes of them")
      ->check(CLI::IsMember({"split", "truncate", "drop"}))
      ->capture_default_str();
  inspect->add_option("--html", flags->html_path, "Write a page here too");
  inspect->callback([flags, &exit_code] { exit_code = Inspect(*flags); });

  CLI::App* pack = data->add_subcommand(
      "pack", "Tokenise once and write a folder that --data takes");
  AddCommon(pack, *flags);
  pack->add_option("--output", flags->output_dir, "New folder")->required();
  pack->add_flag("--skip-bad-records", flags->skip_bad_records,
                 "Count malformed records instead of failing");
  pack->callback([flags, &exit_code] { exit_code = Pack(*flags); });
}

}  // namespace espalier::tools
