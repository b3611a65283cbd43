#include "espalier/tools/flag_names.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace espalier::tools {

namespace {

struct Row {
  absl::string_view setting;
  absl::string_view flag;
};
constexpr Row kRows[] = {{"data.paths", "--data"},
                         {"data.weights", "--data-weights"},
                         {"data.prompt_field", "--prompt-field"},
                         {"data.completion_field", "--completion-field"},
                         {"data.text_boundary", "--boundary"},
                         {"data.text_separator", "--separator"},
                         {"data.loss", "--loss"},
                         {"data.chat_layout", "--layout"},
                         {"data.content_tokens", "--content-token"},
                         {"data.max_sample_tokens", "--max-sample-tokens"},
                         {"max_sample_tokens", "--max-sample-tokens"},
                         {"data.long_samples", "--long-samples"},
                         {"model_dir", "--model"},
                         {"output_dir", "--output"},
                         {"max_steps", "--max-steps"},
                         {"lora_rank", "--lora-rank"},
                         {"lora_alpha", "--lora-alpha"},
                         {"target_modules", "--target-modules"},
                         {"learning_rate", "--lr"},
                         {"weight_decay", "--weight-decay"},
                         {"warmup_ratio", "--warmup-ratio"},
                         {"max_grad_norm", "--max-grad-norm"},
                         {"micro_batch_tokens", "--micro-batch-tokens"},
                         {"grad_accum_steps", "--grad-accum-steps"},
                         {"held_out_paths", "--held-out-data"},
                         {"held_out_fraction", "--held-out-fraction"},
                         {"max_held_out_tokens", "--max-held-out-tokens"},
                         {"num_threads", "--threads"},
                         {"int4_group", "--int4-group"},
                         {"max_shard_bytes", "--max-shard"}};
// Words that messages use of other things, too.
constexpr Row kFirstWords[] = {{"dtype", "--dtype"}, {"only", "--only"},
                               {"tp", "--tp"},       {"ep", "--ep"},
                               {"etp", "--etp"},     {"pp", "--pp"}};

template <size_t kSize>
absl::string_view FlagOf(const Row (&rows)[kSize], absl::string_view word) {
  const Row* row =
      std::find_if(std::begin(rows), std::end(rows),
                   [&](const Row& each) { return each.setting == word; });
  return row == std::end(rows) ? word : row->flag;
}

// Of a setting's name or of a path: a path is one word.
bool IsWordChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::StrContains("_.-/\"", c);
}

}  // namespace

std::string WithFlagNames(absl::string_view message) {
  std::string text;
  for (size_t at = 0; at < message.size();) {
    size_t end = at;
    while (end < message.size() && IsWordChar(message[end])) ++end;
    const absl::string_view word = message.substr(at, end - at);
    const absl::string_view rest = message.substr(end);
    const bool first = at == 0 && (absl::StartsWith(rest, " is ") ||
                                   absl::StartsWith(rest, " holds "));
    absl::StrAppend(&text, first ? FlagOf(kFirstWords, FlagOf(kRows, word))
                                 : FlagOf(kRows, word));
    at = end;
    for (; at < message.size() && !IsWordChar(message[at]); ++at) {
      text += message[at];
    }
  }
  return text;
}

}  // namespace espalier::tools
