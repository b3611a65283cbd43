#include "espalier/io/data_set.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/chat_sample.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/internal/folder_job.h"
#include "espalier/io/token_folder.h"

namespace espalier {

namespace {

constexpr const char* kTokenizerFiles[] = {
    "tokenizer.json",      "tokenizer_config.json",   "tokenizer.model",
    "tiktoken.model",      "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "chat_template.json",
};

absl::StatusOr<std::string> Fingerprint(const std::string& dir) {
  std::string text;
  for (const char* name : kTokenizerFiles) {
    const std::string path = internal::JoinPath(dir, name);
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) continue;
    const auto hash = internal::HashFile(path);
    if (!hash.ok()) return hash.status();
    absl::StrAppend(&text, text.empty() ? "" : " ", name, ":", *hash);
  }
  return text;
}

// Samples of a source that the model has a row for.
class CheckedSource final : public SampleSource {
 public:
  CheckedSource(std::unique_ptr<SampleSource> source,
                const Tokenizer& tokenizer, int64_t vocab_size)
      : source_(std::move(source)),
        tokenizer_(tokenizer),
        vocab_size_(vocab_size) {}

  int64_t size() const override { return source_->size(); }
  absl::StatusOr<EncodedSample> Get(int64_t index) const override {
    auto sample = source_->Get(index);
    if (!sample.ok()) return sample;
    for (const int32_t id : sample->ids) {
      if (id < vocab_size_) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          source_->Place(index), ": token id ", id, " (\"",
          tokenizer_.TokenOf(id), "\"), expected below the model's vocab_size ",
          vocab_size_, "; the tokenizer has more tokens than the model"));
    }
    return sample;
  }
  absl::StatusOr<uint64_t> Hash(int64_t index) const override {
    return source_->Hash(index);
  }
  std::string Describe() const override { return source_->Describe(); }
  std::string Place(int64_t index) const override {
    return source_->Place(index);
  }

 private:
  const std::unique_ptr<SampleSource> source_;
  const Tokenizer& tokenizer_;
  const int64_t vocab_size_;
};

absl::StatusOr<std::unique_ptr<SampleSource>> CheckTokens(
    const std::string& path, const DataSet& set, const TokenFolderInfo& info,
    absl::StatusOr<std::unique_ptr<SampleSource>> source) {
  if (!source.ok()) return source.status();
  if (info.tokenizer != set.tokenizer_fingerprint) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": made with the tokenizer ", info.tokenizer, ", expected ",
        set.tokenizer_fingerprint, "; pack the data again"));
  }
  return source;
}

// What keeps more than one record from being read, chats without a layout say,
// at once: the first record that is not bad shows it.
absl::StatusOr<std::unique_ptr<SampleSource>> CheckRecords(
    absl::StatusOr<std::unique_ptr<SampleSource>> source) {
  constexpr int64_t kMaxBad = 100;
  for (int64_t i = 0; source.ok() && i < (*source)->size() && i < kMaxBad;
       ++i) {
    const absl::Status status = (*source)->Get(i).status();
    if (status.ok()) break;
    if (!absl::IsInvalidArgument(status)) return status;
  }
  return source;
}

absl::Status NoData(const std::string& path) {
  return absl::InvalidArgumentError(absl::StrCat(
      path,
      ": is a folder without tokens.json, expected a data file or a "
      "folder that `espalier data pack` wrote"));
}

absl::StatusOr<std::unique_ptr<SampleSource>> OpenRemoteSource(
    const std::string& path, const std::shared_ptr<const Folder>& folder,
    const DataSetConfig& config, const DataSet& set) {
  if (IsTokenFolder(*folder)) {
    TokenFolderInfo info;
    auto source = OpenTokenFolder(folder, &info);
    return CheckTokens(path, set, info, std::move(source));
  }
  const auto names = folder->List(/*deep=*/true);
  if (!names.ok()) return names.status();
  if (names->size() != 1) return NoData(path);
  return CheckRecords(
      OpenRecordSource(*folder, names->front(), config.records, *set.encoder));
}

absl::StatusOr<std::unique_ptr<SampleSource>> OpenSource(
    const std::string& path, const DataSetConfig& config, const DataSet& set) {
  const auto remote = config.folders.find(path);
  if (remote != config.folders.end()) {
    return OpenRemoteSource(path, remote->second, config, set);
  }
  if (!IsTokenFolder(path)) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) return NoData(path);
    return CheckRecords(OpenRecordSource(path, config.records, *set.encoder));
  }
  TokenFolderInfo info;
  auto source = OpenTokenFolder(path, &info);
  return CheckTokens(path, set, info, std::move(source));
}

}  // namespace

absl::StatusOr<DataSet> OpenDataSet(const std::string& tokenizer_dir,
                                    const DataSetConfig& config) {
  if (config.paths.empty()) {
    return absl::InvalidArgumentError("no data was given");
  }
  if (!config.weights.empty() && config.weights.size() != config.paths.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.weights.size(), " weights for ",
                     config.paths.size(), " data paths"));
  }
  DataSet set;
  auto tokenizer = LoadTokenizer(tokenizer_dir);
  if (!tokenizer.ok()) return tokenizer.status();
  set.tokenizer = *std::move(tokenizer);
  absl::Status known = CheckContentTokens(config.chat, *set.tokenizer);
  if (!known.ok()) return known;
  auto fingerprint = Fingerprint(tokenizer_dir);
  if (!fingerprint.ok()) return fingerprint.status();
  set.tokenizer_fingerprint = *std::move(fingerprint);
  ChatOptions chat = config.chat;
  PlainEncoderOptions plain = config.plain;
  if (plain.train_prompt) chat.loss = ChatLoss::kAll;
  plain.train_prompt = chat.loss == ChatLoss::kAll;
  set.encoder = MakeChatSampleEncoder(
      LoadChatEncoder(tokenizer_dir, *set.tokenizer, config.chat_format),
      MakePlainEncoder(*set.tokenizer, plain), *set.tokenizer, chat);
  for (size_t i = 0; i < config.paths.size(); ++i) {
    auto source = OpenSource(config.paths[i], config, set);
    if (!source.ok()) return source.status();
    if (config.vocab_size > 0 &&
        set.tokenizer->vocab_size() > config.vocab_size) {
      source = std::make_unique<CheckedSource>(
          *std::move(source), *set.tokenizer, config.vocab_size);
    }
    if (set.groups.empty() || !config.weights.empty()) {
      set.groups.emplace_back();
      if (!config.weights.empty()) set.groups.back().weight = config.weights[i];
    }
    set.groups.back().sources.push_back(*std::move(source));
  }
  return set;
}

absl::StatusOr<PackReport> PackDataSet(const DataSet& set,
                                       const std::string& output_dir,
                                       bool skip_bad_records) {
  auto writer = TokenFolderWriter::Create(output_dir, set.tokenizer_fingerprint,
                                          set.tokenizer->vocab_size());
  if (!writer.ok()) return writer.status();
  PackReport report;
  for (const DataGroup& group : set.groups) {
    for (const auto& source : group.sources) {
      if (source->size() == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat(source->Describe(), ": there is nothing to pack"));
      }
      for (int64_t i = 0; i < source->size(); ++i) {
        const auto sample = source->Get(i);
        if (sample.ok()) {
          absl::Status added = writer->Add(*sample);
          if (!added.ok()) return added;
          continue;
        }
        if (!skip_bad_records || !absl::IsInvalidArgument(sample.status())) {
          return sample.status();
        }
        if (report.num_bad_records++ == 0) {
          report.first_bad_record = std::string(sample.status().message());
        }
      }
    }
  }
  if (writer->num_samples() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("all ", report.num_bad_records,
                     " records are bad, the first: ", report.first_bad_record));
  }
  if (absl::Status status = writer->Finish(); !status.ok()) return status;
  report.num_samples = writer->num_samples();
  report.num_tokens = writer->num_tokens();
  return report;
}

}  // namespace espalier
