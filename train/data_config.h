#ifndef ESPALIER_TRAIN_DATA_CONFIG_H_
#define ESPALIER_TRAIN_DATA_CONFIG_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "espalier/runtime/export.h"

namespace espalier {

class Folder;

// Training data and how it becomes samples (docs/formats/data.md).
struct DataConfig {
  // JSON lines or arrays (chats, prompt and completion, instruction, text),
  // plain text, and folders that `espalier data pack` wrote.
  std::vector<std::string> paths;
  // Of paths that are not local, opened (io/object_folder.h).
  std::map<std::string, std::shared_ptr<const Folder>> folders;
  // The share of each path in the tokens that are trained on, such as {3, 1};
  // empty: all records are drawn from as one.
  std::vector<double> weights;

  // Members of JSON records that hold prompt and completion; both or none.
  std::string prompt_field;
  std::string completion_field;
  // What separates the documents of plain text: "blank-line", "separator" (a
  // line equal to text_separator) or "none" (a file is one document).
  std::string text_boundary = "blank-line";
  std::string text_separator;

  // What is trained: "assistant" (answers and completions), "last" (of a chat
  // its last answer) or "all" (prompts too). Text is trained on whole.
  std::string loss = "assistant";
  // How chats are laid out: "auto" (by the model), "template" (its Jinja chat
  // template), "kimi-linear" or "kimi-k3".
  std::string chat_layout = "auto";
  // Of K3's chats that name none: "low", "medium", "high", "max", or "none" for
  // no word of it; "auto": what the checkpoint's tokenizer does, max. Other
  // layouts take "auto" alone.
  std::string thinking_effort = "auto";
  // Added tokens that assistant content may spell, such as "<think>"; others
  // are refused where the tokenizer is read.
  std::vector<std::string> content_tokens;
  // The time that templates print, in seconds since 1970, UTC; without it a
  // template that asks for the time fails.
  std::optional<int64_t> now_seconds;

  // What becomes of a sample with more tokens: "split" (several samples, every
  // token stays), "truncate" (its first tokens) or "drop".
  int64_t max_sample_tokens = 2048;
  std::string long_samples = "split";
  // A malformed record is counted and left out instead of ending the run.
  bool skip_bad_records = false;
};

// OK, or INVALID_ARGUMENT naming the field, what it is and what is expected.
// Looks at no file.
ESPALIER_EXPORT absl::Status Validate(const DataConfig& config);

}  // namespace espalier

#endif  // ESPALIER_TRAIN_DATA_CONFIG_H_
