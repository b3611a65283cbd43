#include "espalier/train/open_data.h"

#include "espalier/train/internal/data_choices.h"

namespace espalier {

ChatOptions ChatOptionsOf(const DataConfig& config) {
  ChatOptions options;
  options.loss = ValueOf(kLosses, config.loss);
  options.content_tokens = config.content_tokens;
  options.thinking_effort = ValueOf(kThinkingEfforts, config.thinking_effort);
  options.now_seconds = config.now_seconds;
  return options;
}

ChatFormat ChatFormatOf(const DataConfig& config) {
  return ValueOf(kLayouts, config.chat_layout);
}

LongSamplePolicy LongSamplesOf(const DataConfig& config) {
  return ValueOf(kLongSamples, config.long_samples);
}

absl::StatusOr<DataSet> OpenData(const std::string& tokenizer_dir,
                                 const DataConfig& config, int64_t vocab_size) {
  absl::Status valid = Validate(config);
  if (!valid.ok()) return valid;
  DataSetConfig set;
  set.paths = config.paths;
  set.folders = config.folders;
  set.weights = config.weights;
  set.records.file.boundary = ValueOf(kBoundaries, config.text_boundary);
  set.records.file.separator = config.text_separator;
  set.records.fields = {config.prompt_field, config.completion_field};
  set.chat = ChatOptionsOf(config);
  set.chat_format = ChatFormatOf(config);
  set.vocab_size = vocab_size;
  return OpenDataSet(tokenizer_dir, set);
}

}  // namespace espalier
