#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"

#include "espalier/io/atomic_file.h"
#include "espalier/io/data_inspect.h"
#include "espalier/io/data_set.h"
#include "espalier/io/json_object.h"
#include "espalier/tools/commands.h"
#include "espalier/tools/data_flags.h"
#include "espalier/tools/remote.h"
#include "espalier/tools/whole_number.h"
#include "espalier/train/open_data.h"

namespace espalier::tools {

namespace {

// The rows of the model whose config.json lies beside the tokenizer, or why
// they are not known.
struct Vocabulary {
  int64_t size = 0;
  std::string unknown;
};

struct DataFlags {
  std::string tokenizer_dir;
  DataConfig data;
  DataInspectOptions inspect;
  bool json = false;
  std::string html_path;
  std::string output_dir;
  RemotePaths remote;
  Vocabulary vocabulary;  // after Open
};

Vocabulary ReadVocabulary(const std::string& dir) {
  Vocabulary found;
  const std::string path = absl::StrCat(dir, "/config.json");
  const auto json = JsonObject::ReadFile(path);
  absl::Status read = json.status();
  JsonObject text;
  if (read.ok()) read = json->GetOptional("vocab_size", &found.size);
  if (read.ok()) read = json->GetOptional("text_config", &text);
  if (read.ok() && found.size == 0) {
    read = text.GetOptional("vocab_size", &found.size);
  }
  if (!read.ok()) {
    found = {0, std::string(read.message())};
  } else if (found.size < 1) {
    found = {0, absl::StrCat(path, ": no vocab_size above 0")};
  }
  return found;
}

std::string VocabularyText(const Vocabulary& vocabulary) {
  if (vocabulary.size > 0) {
    return absl::StrCat("token ids    held against the model's vocab_size ",
                        vocabulary.size);
  }
  return absl::StrCat("token ids    not held against a model: ",
                      vocabulary.unknown);
}

absl::StatusOr<DataSet> Open(DataFlags& flags) {
  absl::Status opened =
      flags.remote.OpenAll(flags.data.paths, &flags.data.folders);
  if (!opened.ok()) return opened;
  const auto tokenizer_dir = flags.remote.Local(flags.tokenizer_dir);
  if (!tokenizer_dir.ok()) return tokenizer_dir.status();
  flags.vocabulary = ReadVocabulary(*tokenizer_dir);
  return OpenData(*tokenizer_dir, flags.data, flags.vocabulary.size);
}

int Inspect(DataFlags& flags) {
  if (const absl::Status valid = Validate(flags.data); !valid.ok()) {
    FailOnFolder("data inspect", valid);
    return kExitUsage;
  }
  const auto set = Open(flags);
  if (!set.ok()) return FailOnFolder("data inspect", set.status());
  flags.inspect.max_sample_tokens = flags.data.max_sample_tokens;
  flags.inspect.long_samples = LongSamplesOf(flags.data);
  const auto inspection = InspectData(set->groups, flags.inspect);
  if (!inspection.ok())
    return FailOnFolder("data inspect", inspection.status());
  if (!flags.html_path.empty()) {
    const absl::Status status = WriteFileAtomically(
        flags.html_path, InspectionHtml(*inspection, *set->tokenizer));
    if (!status.ok()) return FailOnFolder("data inspect", status);
  }
  if (flags.json) {
    JsonValue json = InspectionJson(*inspection, *set->tokenizer);
    // Of the model whose rows the ids were held against; null: of none.
    json.Set("vocab_size", flags.vocabulary.size > 0
                               ? JsonValue(flags.vocabulary.size)
                               : JsonValue());
    const auto text = WriteJson(json);
    if (!text.ok()) return FailOnFolder("data inspect", text.status());
    std::printf("%s", text->c_str());
  } else {
    std::printf("%s", InspectionText(*inspection, *set->tokenizer,
                                     isatty(STDOUT_FILENO) != 0)
                          .c_str());
    std::printf("%s\n", VocabularyText(flags.vocabulary).c_str());
  }
  return inspection->report.num_bad_records > 0 && !flags.data.skip_bad_records
             ? kExitBadInput
             : 0;
}

int Pack(DataFlags& flags) {
  if (const absl::Status valid = Validate(flags.data); !valid.ok()) {
    FailOnFolder("data pack", valid);
    return kExitUsage;
  }
  const auto set = Open(flags);
  if (!set.ok()) return FailOnFolder("data pack", set.status());
  const auto report =
      PackDataSet(*set, flags.output_dir, flags.data.skip_bad_records);
  if (!report.ok()) return FailOnFolder("data pack", report.status());
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
  AddDataFlags(cmd, &f.data);
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
      "code 3 when a record is bad and none are skipped");
  AddCommon(inspect, *flags);
  AddTrainingDataFlags(inspect, &flags->data);
  inspect->add_option("--samples", flags->inspect.num_shown, "Samples to show")
      ->check(WholeNumber(0, std::numeric_limits<int64_t>::max()))
      ->capture_default_str();
  inspect->add_option("--html", flags->html_path, "Write a page here too")
      ->check(OutputPath());
  inspect->callback([flags, &exit_code] {
    exit_code = Inspect(*flags);
    flags->remote.ShowAccount();
  });

  CLI::App* pack = data->add_subcommand(
      "pack", "Tokenise once and write a folder that --data takes");
  AddCommon(pack, *flags);
  pack->add_option("--output", flags->output_dir, "New folder")
      ->required()
      ->check(OutputPath());
  pack->callback([flags, &exit_code] {
    exit_code = Pack(*flags);
    flags->remote.ShowAccount();
  });
}

}  // namespace espalier::tools
