#include "espalier/tools/data_flags.h"

#include <cstdint>
#include <limits>

#include "CLI/CLI.hpp"

#include "espalier/tools/chat_flags.h"
#include "espalier/tools/whole_number.h"

namespace espalier::tools {

void AddDataFlags(CLI::App* cmd, DataConfig* config) {
  cmd->add_option("--data", config->paths,
                  "JSON lines or array, plain text, or a token folder; may "
                  "stand several times")
      ->required();
  cmd->add_option("--prompt-field", config->prompt_field,
                  "Member that holds the prompt, with --completion-field");
  cmd->add_option("--completion-field", config->completion_field,
                  "Member that holds the completion");
  cmd->add_option("--boundary", config->text_boundary,
                  "What separates the documents of plain text")
      ->check(CLI::IsMember({"blank-line", "separator", "none"}))
      ->capture_default_str();
  cmd->add_option("--separator", config->text_separator,
                  "The line between documents, for --boundary separator");
  AddChatFlags(cmd, config);
  cmd->add_flag("--skip-bad-records", config->skip_bad_records,
                "Count malformed records instead of failing");
}

void AddTrainingDataFlags(CLI::App* cmd, DataConfig* config) {
  cmd->add_option("--data-weights", config->weights,
                  "Share of each --data in the tokens, such as 3,1; all are "
                  "drawn from as one if left out")
      ->delimiter(',');
  cmd->add_option("--max-sample-tokens", config->max_sample_tokens,
                  "Longer samples are too long")
      ->check(WholeNumber(1, std::numeric_limits<int64_t>::max()))
      ->capture_default_str();
  cmd->add_option("--long-samples", config->long_samples,
                  "What becomes of them")
      ->check(CLI::IsMember({"split", "truncate", "drop"}))
      ->capture_default_str();
}

}  // namespace espalier::tools
