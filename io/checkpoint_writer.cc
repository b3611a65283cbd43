#include "espalier/io/checkpoint_writer.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "espalier/io/internal/disk_space.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/internal/json_text.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/json.h"
#include "espalier/io/safetensors_reader.h"

namespace espalier {

namespace {

constexpr char kPlanFile[] = ".plan.json";
constexpr char kIndexFile[] = "model.safetensors.index.json";
// A header entry takes at most this beside its name and numbers.
constexpr int64_t kHeaderSlack = 256;

absl::StatusOr<int64_t> BytesOf(const TensorSpec& spec) {
  int64_t bits = BitsOf(spec.dtype);
  for (const int64_t extent : spec.shape) {
    if (extent < 0 || __builtin_mul_overflow(bits, extent, &bits)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", internal::Quote(spec.name), ": shape [",
          absl::StrJoin(spec.shape, ", "), "] is negative or too large"));
    }
  }
  return bits / 8 + (bits % 8 != 0 ? 1 : 0);
}

uint64_t Hash(absl::string_view text, uint64_t seed) {  // FNV-1a
  for (const char c : text) {
    seed = (seed ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  return seed;
}

// A finished shard holds exactly what is planned for it.
bool IsPlanned(const SafetensorsFile& file,
               const std::vector<TensorSpec>& tensors,
               const std::map<std::string, std::string>& metadata) {
  if (file.entries().size() != tensors.size() || file.metadata() != metadata) {
    return false;
  }
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const TensorSpec& spec) {
                       const SafetensorsEntry* entry = file.Find(spec.name);
                       return entry != nullptr && entry->dtype == spec.dtype &&
                              absl::MakeConstSpan(entry->shape) ==
                                  absl::MakeConstSpan(spec.shape);
                     });
}

}  // namespace

absl::Status CheckpointWriter::Plan(std::vector<TensorGroup> groups,
                                    int64_t max_shard_bytes) {
  for (TensorGroup& group : groups) {
    int64_t group_bytes = 0;
    for (const TensorSpec& spec : group) {
      const absl::StatusOr<int64_t> bytes = BytesOf(spec);
      if (!bytes.ok()) return bytes.status();
      if (__builtin_add_overflow(group_bytes, *bytes, &group_bytes) ||
          total_bytes_ > INT64_MAX - group_bytes) {
        return absl::InvalidArgumentError("the checkpoint grows too large");
      }
    }
    if (shards_.empty() ||
        (!shards_.back().tensors.empty() &&
         shards_.back().missing_bytes > max_shard_bytes - group_bytes)) {
      shards_.emplace_back();
    }
    Shard& shard = shards_.back();
    shard.missing_bytes += group_bytes;
    total_bytes_ += group_bytes;
    for (TensorSpec& spec : group) {
      const uint32_t index = static_cast<uint32_t>(shards_.size() - 1);
      if (!shard_of_.try_emplace(spec.name, index).second) {
        return absl::InvalidArgumentError(absl::StrCat(
            "tensor ", internal::Quote(spec.name), ": named twice"));
      }
      shard.tensors.push_back(std::move(spec));
    }
    TensorGroup().swap(group);
  }
  if (shards_.empty()) shards_.emplace_back();
  for (size_t i = 0; i < shards_.size(); ++i) {
    shards_[i].file = shards_.size() == 1
                          ? "model.safetensors"
                          : absl::StrFormat("model-%05d-of-%05d.safetensors",
                                            i + 1, shards_.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CheckpointWriter::PlanText(
    const std::string& fingerprint) const {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const Shard& shard : shards_) {
    hash = Hash(absl::StrCat(shard.file, "\n"), hash);
    for (const TensorSpec& spec : shard.tensors) {
      hash = Hash(absl::StrCat(spec.name, "\n", ToString(spec.dtype), " ",
                               absl::StrJoin(spec.shape, ","), "\n"),
                  hash);
    }
  }
  return WriteJson(JsonValue::Object{
      {"fingerprint", fingerprint},
      {"tensors", absl::StrCat(absl::Hex(hash, absl::kZeroPad16))}});
}

// Holds the plan against that of an earlier run.
absl::Status CheckpointWriter::CheckPlan(const std::string& plan) const {
  const std::string path = dir_.Path(kPlanFile);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return absl::OkStatus();
  const absl::StatusOr<std::string> old =
      internal::ReadWholeFile(path, int64_t{1} << 24);
  if (!old.ok()) return old.status();
  if (*old == plan) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      dir_.path(),
      " was begun with another source or other settings and cannot be resumed; "
      "remove the folder to start again"));
}

// Finds the shards that are finished and removes what a kill left half written.
absl::Status CheckpointWriter::TakeUpShards() {
  std::error_code error;
  std::vector<std::filesystem::path> names;
  for (std::filesystem::directory_iterator it(dir_.path(), error), end;
       !error && it != end; it.increment(error)) {
    names.push_back(it->path());
  }
  for (const std::filesystem::path& path : names) {
    const std::string name = path.filename().string();
    if (absl::StartsWith(name, ".") && absl::StrContains(name, ".tmp-")) {
      std::filesystem::remove(path, error);
    }
  }
  for (Shard& shard : shards_) {
    const std::string path = dir_.Path(shard.file);
    if (!std::filesystem::exists(path, error)) continue;
    const absl::StatusOr<SafetensorsFile> file =
        SafetensorsFile::Open(path, ReadMode::kRead);
    // Damaged since it was finished: it is written again.
    if (!file.ok()) continue;
    if (!IsPlanned(*file, shard.tensors, metadata_)) {
      return absl::FailedPreconditionError(absl::StrCat(
          path, " holds other tensors than this run would write; remove ",
          dir_.path(), " to start again"));
    }
    shard.finished = true;
    resumed_bytes_ += shard.missing_bytes;
    shard.missing_bytes = 0;
  }
  return absl::OkStatus();
}

absl::Status CheckpointWriter::CheckSpace() const {
  int64_t needed = 0;
  for (const Shard& shard : shards_) {
    if (shard.finished) continue;
    needed += shard.missing_bytes;
    for (const TensorSpec& spec : shard.tensors) {
      needed += kHeaderSlack + static_cast<int64_t>(spec.name.size());
    }
  }
  return internal::CheckSpace(dir_.path(), dir_.target(), needed);
}

absl::StatusOr<CheckpointWriter> CheckpointWriter::Create(
    const std::string& dir, std::vector<TensorGroup> groups,
    const CheckpointWriterOptions& options) {
  if (options.max_shard_bytes < 1) {
    return absl::OutOfRangeError(
        absl::StrCat("max_shard_bytes is ", options.max_shard_bytes));
  }
  absl::StatusOr<AtomicDirectory> folder =
      AtomicDirectory::CreatePartial(dir, options.resume);
  if (!folder.ok()) return folder.status();
  CheckpointWriter writer(*std::move(folder));
  writer.metadata_ = options.metadata;
  absl::Status status = writer.Plan(std::move(groups), options.max_shard_bytes);
  if (!status.ok()) return status;
  const absl::StatusOr<std::string> plan = writer.PlanText(options.fingerprint);
  if (!plan.ok()) return plan.status();
  status = writer.CheckPlan(*plan);
  if (status.ok()) status = writer.TakeUpShards();
  if (status.ok()) status = writer.CheckSpace();
  // Last, so that what fails before it leaves an empty folder.
  if (status.ok()) {
    status = WriteFileAtomically(writer.dir_.Path(kPlanFile), *plan);
  }
  if (!status.ok()) return status;
  return writer;
}

int64_t CheckpointWriter::num_finished_shards() const {
  return std::count_if(shards_.begin(), shards_.end(),
                       [](const Shard& shard) { return shard.finished; });
}

bool CheckpointWriter::IsWritten(absl::string_view name) const {
  const auto found = shard_of_.find(name);
  return found != shard_of_.end() && shards_[found->second].finished;
}

absl::Status CheckpointWriter::CloseShard() {
  if (absl::Status status = open_->Finish(); !status.ok()) return status;
  open_.reset();
  shards_[open_shard_].finished = true;
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Append(absl::string_view name,
                                      absl::Span<const uint8_t> bytes) {
  const auto found = shard_of_.find(name);
  if (found == shard_of_.end()) {
    return absl::NotFoundError(
        absl::StrCat(dir_.target(), ": no tensor ", internal::Quote(name)));
  }
  Shard& shard = shards_[found->second];
  if (shard.finished || (open_ && open_shard_ != found->second)) {
    return absl::FailedPreconditionError(absl::StrCat(
        dir_.target(), ": tensor ", internal::Quote(name), " is in ",
        shard.file, ", which is ",
        shard.finished ? "finished"
                       : absl::StrCat("not begun before ",
                                      shards_[open_shard_].file, " is full")));
  }
  if (!open_) {
    absl::StatusOr<SafetensorsWriter> writer = SafetensorsWriter::Create(
        dir_.Path(shard.file), shard.tensors, metadata_);
    if (!writer.ok()) return writer.status();
    open_.emplace(*std::move(writer));
    open_shard_ = found->second;
  }
  absl::Status status = open_->Append(name, bytes);
  if (!status.ok()) return status;
  shard.missing_bytes -= static_cast<int64_t>(bytes.size());
  return shard.missing_bytes == 0 ? CloseShard() : absl::OkStatus();
}

absl::Status CheckpointWriter::AddFile(const std::string& name,
                                       absl::string_view text) {
  if (!internal::IsBareFileName(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat(internal::Quote(name), " is not a plain file name"));
  }
  return WriteFileAtomically(dir_.Path(name), text);
}

absl::Status CheckpointWriter::CopyFile(const std::string& path) {
  absl::StatusOr<internal::ReadableFile> source =
      internal::ReadableFile::Open(path);
  if (!source.ok()) return source.status();
  absl::StatusOr<AtomicFile> target = AtomicFile::Create(
      dir_.Path(std::string(internal::BaseName(path))), source->size());
  if (!target.ok()) return target.status();
  std::vector<uint8_t> piece(
      static_cast<size_t>(std::min(source->size(), int64_t{1} << 20)));
  for (int64_t at = 0; at < source->size();
       at += static_cast<int64_t>(piece.size())) {
    const auto span = absl::MakeSpan(piece).subspan(
        0, static_cast<size_t>(source->size() - at));
    absl::Status status = source->ReadAt(at, span);
    if (status.ok()) status = target->WriteAt(at, span);
    if (!status.ok()) return status;
  }
  return target->Commit();
}

// As WriteJson writes it, without the tree in memory.
absl::Status CheckpointWriter::WriteIndex() {
  std::vector<const std::pair<const std::string, uint32_t>*> order;
  order.reserve(shard_of_.size());
  for (const auto& item : shard_of_) order.push_back(&item);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->first < b->first; });
  std::string text =
      absl::StrCat("{\n  \"metadata\": {\n    \"total_size\": ", total_bytes_,
                   "\n  },\n  \"weight_map\": {");
  absl::string_view separator = "\n    ";
  for (const auto* item : order) {
    absl::StrAppend(&text, separator);
    absl::Status status = internal::AppendJsonString(item->first, &text);
    if (!status.ok()) return status;
    absl::StrAppend(&text, ": \"", shards_[item->second].file, "\"");
    separator = ",\n    ";
  }
  text += "\n  }\n}\n";
  return AddFile(kIndexFile, text);
}

absl::Status CheckpointWriter::Finish() {
  for (uint32_t i = 0; i < shards_.size(); ++i) {
    Shard& shard = shards_[i];
    if (shard.finished) continue;
    if (shard.missing_bytes > 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(dir_.target(), ": ", shard.missing_bytes, " bytes of ",
                       shard.file, " were not written; it begins with tensor ",
                       internal::Quote(shard.tensors.front().name)));
    }
    // Tensors without bytes only.
    absl::StatusOr<SafetensorsWriter> writer = SafetensorsWriter::Create(
        dir_.Path(shard.file), shard.tensors, metadata_);
    absl::Status status = writer.ok() ? writer->Finish() : writer.status();
    if (!status.ok()) return status;
    shard.finished = true;
  }
  if (shards_.size() > 1) {
    if (absl::Status status = WriteIndex(); !status.ok()) return status;
  }
  std::error_code error;
  std::filesystem::remove(dir_.Path(kPlanFile), error);
  return dir_.Commit();
}

}  // namespace espalier
