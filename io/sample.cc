#include "espalier/io/sample.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/content_hash.h"
#include "espalier/io/internal/utf8.h"

namespace espalier {

namespace {

class PlainEncoder final : public SampleEncoder {
 public:
  PlainEncoder(const Tokenizer& tokenizer, const PlainEncoderOptions& options)
      : tokenizer_(tokenizer), options_(options) {}

  absl::StatusOr<EncodedSample> Encode(const Example& example) const override {
    if (example.kind == Example::Kind::kChat) {
      return absl::UnimplementedError(
          "a chat example needs a chat template, and the model has none "
          "(chat_template of tokenizer_config.json)");
    }
    const bool is_text = example.kind == Example::Kind::kText;
    EncodedSample sample;
    if (is_text && example.text.empty()) return sample;
    if (options_.add_bos && tokenizer_.bos_id()) {
      Add(*tokenizer_.bos_id(), 0, &sample);
    }
    absl::Status status =
        is_text ? Append(example.text, TokenRole::kText, 1, &sample)
                : Append(example.prompt, TokenRole::kPrompt,
                         options_.train_prompt ? 1 : 0, &sample);
    if (status.ok() && !is_text)
      status = Append(example.completion, TokenRole::kCompletion, 1, &sample);
    if (!status.ok()) return status;
    if (options_.add_eos && tokenizer_.eos_id()) {
      Add(*tokenizer_.eos_id(), 1, &sample);
    }
    return sample;
  }

 private:
  static void Add(int32_t id, float weight, EncodedSample* sample) {
    sample->ids.push_back(id);
    sample->weights.push_back(weight);
    sample->roles.push_back(TokenRole::kControl);
  }

  absl::Status Append(absl::string_view text, TokenRole role, float weight,
                      EncodedSample* sample) const {
    const auto ids = tokenizer_.Encode(text);
    if (!ids.ok()) return ids.status();
    sample->ids.insert(sample->ids.end(), ids->begin(), ids->end());
    sample->weights.resize(sample->ids.size(), weight);
    sample->roles.resize(sample->ids.size(), role);
    return absl::OkStatus();
  }

  const Tokenizer& tokenizer_;
  const PlainEncoderOptions options_;
};

class RecordSource final : public SampleSource {
 public:
  RecordSource(std::unique_ptr<RecordFile> file, ExampleFields fields,
               const SampleEncoder& encoder)
      : file_(std::move(file)), fields_(std::move(fields)), encoder_(encoder) {}

  int64_t size() const override { return file_->size(); }

  absl::StatusOr<EncodedSample> Get(int64_t index) const override {
    const auto record = file_->Read(index);
    if (!record.ok()) return record.status();
    const std::string where = absl::StrCat(file_->path(), ":", record->line);
    auto example = Parse(record->bytes, where);
    if (!example.ok()) return example.status();
    auto sample = encoder_.Encode(*example);
    if (!sample.ok()) {
      return absl::Status(sample.status().code(),
                          absl::StrCat(where, ": ", sample.status().message()));
    }
    sample->content_hash = ContentHash(record->bytes);
    return sample;
  }

  absl::StatusOr<uint64_t> Hash(int64_t index) const override {
    const auto record = file_->Read(index);
    if (!record.ok()) return record.status();
    return ContentHash(record->bytes);
  }

  std::string Describe() const override {
    return absl::StrCat(file_->path(), ": ", file_->size(), " records, ",
                        file_->num_bytes(), " bytes");
  }

  std::string Place(int64_t index) const override {
    const auto record = file_->Read(index);
    return absl::StrCat(file_->path(), ":",
                        record.ok() ? absl::StrCat(record->line) : "?");
  }

 private:
  absl::StatusOr<Example> Parse(const std::string& bytes,
                                const std::string& where) const {
    if (file_->is_json()) return ParseExample(bytes, fields_, where);
    if (!internal::IsValidUtf8(bytes)) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": not UTF-8"));
    }
    Example example;
    example.text = bytes;
    return example;
  }

  const std::unique_ptr<RecordFile> file_;
  const ExampleFields fields_;
  const SampleEncoder& encoder_;
};

absl::StatusOr<std::unique_ptr<SampleSource>> MakeSource(
    absl::StatusOr<std::unique_ptr<RecordFile>> file,
    const RecordSourceOptions& options, const SampleEncoder& encoder) {
  if (options.fields.prompt.empty() != options.fields.completion.empty()) {
    return absl::InvalidArgumentError(
        "the prompt and the completion field go together");
  }
  if (!file.ok()) return file.status();
  return std::make_unique<RecordSource>(*std::move(file), options.fields,
                                        encoder);
}

}  // namespace

absl::string_view ToString(TokenRole role) {
  constexpr absl::string_view kNames[] = {"text",   "prompt", "completion",
                                          "system", "user",   "assistant",
                                          "tool",   "control"};
  return kNames[static_cast<size_t>(role)];
}

std::unique_ptr<SampleEncoder> MakePlainEncoder(
    const Tokenizer& tokenizer, const PlainEncoderOptions& options) {
  return std::make_unique<PlainEncoder>(tokenizer, options);
}

absl::StatusOr<std::unique_ptr<SampleSource>> OpenRecordSource(
    const std::string& path, const RecordSourceOptions& options,
    const SampleEncoder& encoder) {
  return MakeSource(RecordFile::Open(path, options.file), options, encoder);
}

absl::StatusOr<std::unique_ptr<SampleSource>> OpenRecordSource(
    const Folder& folder, const std::string& name,
    const RecordSourceOptions& options, const SampleEncoder& encoder) {
  return MakeSource(RecordFile::Open(folder, name, options.file), options,
                    encoder);
}

}  // namespace espalier
