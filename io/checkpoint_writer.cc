#include "espalier/io/checkpoint_writer.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/atomic_file.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/internal/folder_job.h"
#include "espalier/io/internal/json_text.h"
#include "espalier/io/internal/shard_hash.h"
#include "espalier/io/internal/shard_plan.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/json.h"

namespace espalier {

namespace {

constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr size_t kIndexPieceBytes = size_t{1} << 20;

}  // namespace

CheckpointWriter::CheckpointWriter(internal::FolderJob job,
                                   internal::ShardPlan plan)
    : job_(std::make_unique<internal::FolderJob>(std::move(job))),
      plan_(std::make_unique<const internal::ShardPlan>(std::move(plan))) {
  for (const internal::ShardPlan::Shard& shard : plan_->shards()) {
    states_.push_back({shard.data_bytes, false});
  }
}
CheckpointWriter::~CheckpointWriter() = default;
CheckpointWriter::CheckpointWriter(CheckpointWriter&&) noexcept = default;

int64_t CheckpointWriter::total_bytes() const { return plan_->total_bytes(); }

// Finds the shards that are finished; returns the bytes that are not.
int64_t CheckpointWriter::TakeUpShards() {
  int64_t needed = 0;
  for (size_t i = 0; i < states_.size(); ++i) {
    const internal::ShardPlan::Shard& shard = plan_->shards()[i];
    if (!job_->FindShard(shard.file)) {
      needed += shard.data_bytes + shard.header_bytes;
      continue;
    }
    states_[i].finished = true;
    resumed_bytes_ += states_[i].missing_bytes;
    states_[i].missing_bytes = 0;
  }
  return needed;
}

absl::StatusOr<CheckpointWriter> CheckpointWriter::Create(
    const std::string& dir, std::vector<TensorGroup> groups,
    const CheckpointWriterOptions& options) {
  TensorGroups kept;
  kept.count = static_cast<int64_t>(groups.size());
  kept.at = [groups = std::move(groups)](int64_t index) {
    return groups[static_cast<size_t>(index)];
  };
  return CreateFrom(dir, kept, options);
}

absl::StatusOr<CheckpointWriter> CheckpointWriter::CreateFrom(
    const std::string& dir, const TensorGroups& groups,
    const CheckpointWriterOptions& options) {
  if (options.max_shard_bytes < 1) {
    return absl::OutOfRangeError(
        absl::StrCat("max_shard_bytes is ", options.max_shard_bytes));
  }
  absl::StatusOr<internal::ShardPlan> shards =
      internal::ShardPlan::Make(groups, options.max_shard_bytes);
  if (!shards.ok()) return shards.status();
  JsonValue metadata = JsonValue::Object{};
  for (const auto& [key, value] : options.metadata) metadata.Set(key, value);
  absl::StatusOr<std::string> plan =
      WriteJson(JsonValue::Object{{"fingerprint", options.fingerprint},
                                  {"metadata", std::move(metadata)},
                                  {"tensors", shards->fingerprint()}});
  if (!plan.ok()) return plan.status();
  absl::StatusOr<internal::FolderJob> job =
      internal::FolderJob::Open(dir, *std::move(plan), options.resume);
  if (!job.ok()) return job.status();
  CheckpointWriter writer(*std::move(job), *std::move(shards));
  writer.metadata_ = options.metadata;
  absl::Status status = writer.job_->Start(writer.TakeUpShards());
  if (!status.ok()) return status;
  return writer;
}

int64_t CheckpointWriter::num_finished_shards() const {
  return std::count_if(states_.begin(), states_.end(),
                       [](const ShardState& state) { return state.finished; });
}

bool CheckpointWriter::IsWritten(absl::string_view name) const {
  const int64_t shard = plan_->ShardOf(name);
  return shard >= 0 && states_[static_cast<size_t>(shard)].finished;
}

absl::StatusOr<SafetensorsWriter> CheckpointWriter::OpenShard(
    size_t shard) const {
  const absl::StatusOr<std::vector<TensorSpec>> tensors =
      plan_->TensorsOf(plan_->shards()[shard]);
  if (!tensors.ok()) return tensors.status();
  return SafetensorsWriter::Create(job_->Path(plan_->shards()[shard].file),
                                   *tensors, metadata_);
}

absl::Status CheckpointWriter::CloseShard() {
  SafetensorsWriter writer = *std::move(open_);
  open_.reset();
  return FinishShard(open_shard_, std::move(writer));
}

absl::Status CheckpointWriter::FinishShard(size_t shard,
                                           SafetensorsWriter writer) {
  std::vector<uint64_t> tensors;
  for (const SafetensorsEntry& entry : writer.entries()) {
    const auto hasher = hashers_.find(entry.name);
    tensors.push_back(hasher == hashers_.end() ? ContentHash("")
                                               : hasher->second->Digest());
  }
  hashers_.clear();
  if (absl::Status status = writer.Finish(); !status.ok()) return status;
  states_[shard].finished = true;
  const std::string& name = plan_->shards()[shard].file;
  absl::StatusOr<std::string> header =
      internal::HashFile(job_->Path(name), writer.data_start());
  if (!header.ok()) return header.status();
  return job_->NoteShard(name,
                         {*std::move(header), internal::HashOfHashes(tensors)});
}

absl::Status CheckpointWriter::Append(absl::string_view name,
                                      absl::Span<const uint8_t> bytes) {
  const int64_t found = plan_->ShardOf(name);
  if (found < 0) {
    return absl::NotFoundError(
        absl::StrCat(job_->target(), ": no tensor ", internal::Quote(name)));
  }
  const size_t shard = static_cast<size_t>(found);
  ShardState& state = states_[shard];
  if (state.finished || (open_ && open_shard_ != shard)) {
    return absl::FailedPreconditionError(absl::StrCat(
        job_->target(), ": tensor ", internal::Quote(name), " is in ",
        plan_->shards()[shard].file, ", which is ",
        state.finished
            ? "finished"
            : absl::StrCat("not begun before ",
                           plan_->shards()[open_shard_].file, " is full")));
  }
  if (!open_) {
    absl::StatusOr<SafetensorsWriter> writer = OpenShard(shard);
    if (!writer.ok()) return writer.status();
    open_.emplace(*std::move(writer));
    open_shard_ = shard;
  }
  absl::Status status = open_->Append(name, bytes);
  if (!status.ok()) return status;
  auto hasher = hashers_.find(name);
  if (hasher == hashers_.end()) {
    hasher = hashers_.emplace(name, std::make_unique<ContentHasher>()).first;
  }
  hasher->second->Update(bytes);
  state.missing_bytes -= static_cast<int64_t>(bytes.size());
  return state.missing_bytes == 0 ? CloseShard() : absl::OkStatus();
}

absl::Status CheckpointWriter::AddFile(const std::string& name,
                                       absl::string_view text) {
  if (!internal::IsBareFileName(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat(internal::Quote(name), " is not a plain file name"));
  }
  return WriteFileAtomically(job_->Path(name), text);
}

absl::Status CheckpointWriter::CopyFile(const std::string& path) {
  const absl::StatusOr<internal::ReadableFile> file =
      internal::ReadableFile::Open(path);
  return file.ok() ? CopyFile(*file) : file.status();
}

absl::Status CheckpointWriter::CopyFile(const internal::ReadableFile& file) {
  absl::StatusOr<AtomicFile> target = AtomicFile::Create(
      job_->Path(std::string(internal::BaseName(file.path()))), file.size());
  if (!target.ok()) return target.status();
  std::vector<uint8_t> piece(
      static_cast<size_t>(std::min(file.size(), int64_t{1} << 20)));
  for (int64_t at = 0; at < file.size();
       at += static_cast<int64_t>(piece.size())) {
    const auto span =
        absl::MakeSpan(piece).subspan(0, static_cast<size_t>(file.size() - at));
    absl::Status status = file.ReadAt(at, span);
    if (status.ok()) status = target->WriteAt(at, span);
    if (!status.ok()) return status;
  }
  return target->Commit();
}

// As WriteJson writes it, without the tree or the text in memory.
absl::Status CheckpointWriter::WriteIndex() {
  struct Item {
    size_t begin = 0;  // in names
    uint32_t size = 0;
    uint32_t shard = 0;
  };
  std::string names;
  names.reserve(static_cast<size_t>(plan_->name_bytes()));
  std::vector<Item> items;
  items.reserve(static_cast<size_t>(plan_->num_tensors()));
  for (uint32_t i = 0; i < states_.size(); ++i) {
    const absl::StatusOr<std::vector<TensorSpec>> tensors =
        plan_->TensorsOf(plan_->shards()[i]);
    if (!tensors.ok()) return tensors.status();
    for (const TensorSpec& spec : *tensors) {
      items.push_back(
          {names.size(), static_cast<uint32_t>(spec.name.size()), i});
      names += spec.name;
    }
  }
  const auto name_of = [&](const Item& item) {
    return absl::string_view(names).substr(item.begin, item.size);
  };
  std::sort(items.begin(), items.end(), [&](const Item& a, const Item& b) {
    return name_of(a) < name_of(b);
  });
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(job_->Path(kIndexFile));
  if (!file.ok()) return file.status();
  int64_t at = 0;
  std::string text =
      absl::StrCat("{\n  \"metadata\": {\n    \"total_size\": ", total_bytes(),
                   "\n  },\n  \"weight_map\": {");
  const auto flush = [&] {
    absl::Status status = file->WriteAt(
        at, absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()),
                                text.size()));
    at += static_cast<int64_t>(text.size());
    text.clear();
    return status;
  };
  absl::string_view separator = "\n    ";
  for (const Item& item : items) {
    absl::StrAppend(&text, separator);
    absl::Status status = internal::AppendJsonString(name_of(item), &text);
    absl::StrAppend(&text, ": \"", plan_->shards()[item.shard].file, "\"");
    separator = ",\n    ";
    if (status.ok() && text.size() > kIndexPieceBytes) status = flush();
    if (!status.ok()) return status;
  }
  text += "\n  }\n}\n";
  absl::Status status = flush();
  return status.ok() ? file->Commit() : status;
}

absl::Status CheckpointWriter::Finish() {
  for (size_t i = 0; i < states_.size(); ++i) {
    ShardState& state = states_[i];
    if (state.finished) continue;
    const internal::ShardPlan::Shard& shard = plan_->shards()[i];
    if (state.missing_bytes > 0) {
      const absl::StatusOr<std::vector<TensorSpec>> tensors =
          plan_->TensorsOf(shard);
      if (!tensors.ok()) return tensors.status();
      return absl::FailedPreconditionError(
          absl::StrCat(job_->target(), ": ", state.missing_bytes, " bytes of ",
                       shard.file, " were not written; it begins with tensor ",
                       internal::Quote(tensors->front().name)));
    }
    // Tensors without bytes only.
    absl::StatusOr<SafetensorsWriter> writer = OpenShard(i);
    absl::Status status =
        writer.ok() ? FinishShard(i, *std::move(writer)) : writer.status();
    if (!status.ok()) return status;
  }
  if (states_.size() > 1) {
    if (absl::Status status = WriteIndex(); !status.ok()) return status;
  }
  return job_->Finish();
}

}  // namespace espalier
