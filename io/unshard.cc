#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/atomic_file.h"
#include "espalier/io/family_table.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/internal/folder_job.h"
#include "espalier/io/internal/piece_copy.h"
#include "espalier/io/internal/shard_layout.h"
#include "espalier/io/internal/tensor_cut.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/safetensors_reader.h"
#include "espalier/io/shard.h"

namespace espalier {

namespace {

using internal::PieceGroup;
using internal::ShardLayout;
using internal::TensorCut;

constexpr size_t kMaxOpenFiles = 24;
constexpr size_t kLengthBytes = 8;

class Joiner {
 public:
  Joiner(const std::string& dir, const ShardLayout& layout,
         const FamilyTable& table, const ShardOptions& options)
      : dir_(dir), layout_(layout), table_(table), options_(options) {}

  absl::StatusOr<ShardReport> Run(const std::string& out) {
    absl::Status status = FindPieces();
    if (!status.ok()) return status;
    const absl::StatusOr<std::string> plan = internal::WriteLayout(layout_);
    if (!plan.ok()) return plan.status();
    std::vector<std::pair<std::string, int64_t>> files;
    for (const ShardLayout::Source& source : layout_.sources) {
      files.emplace_back(source.name, source.num_bytes);
    }
    for (const ShardLayout::Copied& copied : layout_.copied) {
      files.emplace_back(copied.name, copied.num_bytes);
    }
    absl::StatusOr<internal::FolderJob> job = internal::FolderJob::Begin(
        out, absl::StrCat("unshard\n", *plan), files, options_.resume);
    if (!job.ok()) return job.status();
    report_.out = out;
    report_.num_files = static_cast<int64_t>(layout_.sources.size());
    report_.left_out = layout_.left_out;
    for (const ShardLayout::Source& source : layout_.sources) {
      status = WriteSource(source, *job);
      if (!status.ok()) return status;
    }
    status = CopyOthers(*job);
    if (status.ok()) status = job->Finish();
    if (!status.ok()) return status;
    return report_;
  }

 private:
  // A tensor's piece in this folder, found by a hash of its name.
  struct Place {
    uint64_t hash = 0;
    uint32_t file = 0;
    int64_t offset = 0;
    int64_t num_bytes = 0;
  };

  static uint64_t HashName(absl::string_view name) {
    return absl::Hash<absl::string_view>()(name);
  }

  absl::Status FindPieces() {
    for (uint32_t f = 0; f < layout_.files.size(); ++f) {
      const ShardLayout::File& file = layout_.files[f];
      const absl::StatusOr<SafetensorsFile> opened = SafetensorsFile::Open(
          internal::JoinPath(dir_, file.name), ReadMode::kRead);
      if (!opened.ok()) return opened.status();
      for (const SafetensorsEntry& entry : opened->entries()) {
        places_.push_back({HashName(entry.name), f,
                           opened->data_start() + entry.begin,
                           entry.num_bytes()});
      }
    }
    std::sort(places_.begin(), places_.end(),
              [](const Place& a, const Place& b) {
                return std::pair(a.hash, a.file) < std::pair(b.hash, b.file);
              });
    return absl::OkStatus();
  }

  absl::StatusOr<const Place*> PlaceOf(absl::string_view name,
                                       const PieceGroup& group,
                                       int64_t num_bytes) const {
    const uint64_t hash = HashName(name);
    auto place = std::lower_bound(
        places_.begin(), places_.end(), hash,
        [](const Place& a, uint64_t key) { return a.hash < key; });
    for (; place != places_.end() && place->hash == hash; ++place) {
      if (layout_.files[place->file].group != group) continue;
      if (place->num_bytes != num_bytes) {
        return absl::DataLossError(absl::StrCat(
            internal::JoinPath(dir_, layout_.files[place->file].name),
            ": tensor ", internal::Quote(name), " has ", place->num_bytes,
            " bytes, expected ", num_bytes));
      }
      return &*place;
    }
    return absl::DataLossError(
        absl::StrCat(dir_, ": no file of group ", internal::ToString(group),
                     " holds tensor ", internal::Quote(name)));
  }

  // Kept open for the tensors that follow; std::map keeps addresses.
  absl::StatusOr<const internal::ReadableFile*> Opened(uint32_t file) {
    const auto found = open_.find(file);
    if (found != open_.end()) return &found->second;
    absl::StatusOr<internal::ReadableFile> opened =
        internal::ReadableFile::Open(
            internal::JoinPath(dir_, layout_.files[file].name));
    if (!opened.ok()) return opened.status();
    return &open_.emplace(file, *std::move(opened)).first->second;
  }

  absl::Status WriteSource(const ShardLayout::Source& source,
                           internal::FolderJob& job) {
    const std::string header_path = internal::JoinPath(
        dir_,
        absl::StrCat(internal::kOriginalDir, "/", source.name, ".header"));
    const absl::StatusOr<std::string> header = internal::ReadWholeFile(
        header_path, kMaxSafetensorsHeaderBytes + int64_t{kLengthBytes});
    if (!header.ok()) return header.status();
    const absl::StatusOr<std::string> hash = internal::HashFile(header_path);
    if (!hash.ok()) return hash.status();
    if (static_cast<int64_t>(header->size()) != source.header_bytes ||
        *hash != source.header_hash) {
      return absl::DataLossError(absl::StrCat(
          header_path, ": hash ", *hash, ", expected ", source.header_hash));
    }
    const absl::StatusOr<SafetensorsHeader> parsed =
        ParseSafetensorsHeader(absl::string_view(*header).substr(kLengthBytes),
                               source.num_bytes - source.header_bytes);
    if (!parsed.ok()) {
      return absl::Status(
          parsed.status().code(),
          absl::StrCat(header_path, ": ", parsed.status().message()));
    }
    report_.num_tensors += static_cast<int64_t>(parsed->entries.size());
    report_.total_bytes += source.num_bytes - source.header_bytes;
    if (job.IsThere(source.name, source.num_bytes)) {
      ++report_.num_taken_up;
      return absl::OkStatus();
    }
    absl::StatusOr<AtomicFile> file =
        AtomicFile::Create(job.Path(source.name), source.num_bytes);
    if (!file.ok()) return file.status();
    absl::Status status = file->WriteAt(
        0, absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(header->data()),
                               header->size()));
    for (const SafetensorsEntry& entry : parsed->entries) {
      if (status.ok()) status = JoinTensor(entry, source.header_bytes, *file);
    }
    if (status.ok()) status = file->Commit();
    return status.ok() ? Step() : status;
  }

  absl::Status JoinTensor(const SafetensorsEntry& entry, int64_t data_start,
                          AtomicFile& file) {
    FamilyTable::Match match;
    absl::StatusOr<TensorCut> cut =
        internal::WholeTensor(entry.shape, entry.num_bytes(), {});
    if (table_.Find(entry.name, entry.dtype, &match)) {
      cut = internal::CutTensor(table_, match, entry.name, entry.shape,
                                entry.dtype, layout_.mesh);
    }
    if (!cut.ok()) return cut.status();
    if (open_.size() + cut->pieces.size() > kMaxOpenFiles) open_.clear();
    std::vector<internal::PieceCopier::Part> parts;
    for (const internal::TensorPiece& piece : cut->pieces) {
      const absl::StatusOr<const Place*> place =
          PlaceOf(entry.name, piece.group, cut->PieceBytes(piece));
      if (!place.ok()) return place.status();
      const absl::StatusOr<const internal::ReadableFile*> opened =
          Opened((*place)->file);
      if (!opened.ok()) return opened.status();
      parts.push_back({&piece, *opened, (*place)->offset});
      ++report_.num_pieces;
    }
    return copier_.Join(
        parts, *cut, [&](int64_t at, absl::Span<const uint8_t> bytes) {
          return file.WriteAt(data_start + entry.begin + at, bytes);
        });
  }

  absl::Status CopyOthers(internal::FolderJob& job) {
    std::error_code error;
    if (layout_.has_index &&
        !std::filesystem::exists(job.Path(internal::kIndexName), error)) {
      absl::Status status = job.Copy(
          internal::JoinPath(dir_, absl::StrCat(internal::kOriginalDir, "/",
                                                internal::kIndexName)),
          internal::kIndexName);
      if (status.ok()) status = Step();
      if (!status.ok()) return status;
    }
    for (const ShardLayout::Copied& copied : layout_.copied) {
      if (job.IsThere(copied.name, copied.num_bytes)) continue;
      absl::Status status = job.Copy(internal::JoinPath(dir_, copied.name),
                                     copied.name, copied.hash);
      if (status.ok()) status = Step();
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Step() const {
    int64_t total = 0;
    for (const ShardLayout::File& file : layout_.files) {
      total += file.data_bytes;
    }
    return options_.on_file ? options_.on_file(report_.total_bytes, total)
                            : absl::OkStatus();
  }

  const std::string dir_;
  const ShardLayout& layout_;
  const FamilyTable& table_;
  const ShardOptions& options_;
  std::vector<Place> places_;
  std::map<uint32_t, internal::ReadableFile> open_;
  internal::PieceCopier copier_;
  ShardReport report_;
};

}  // namespace

absl::StatusOr<ShardReport> UnshardCheckpoint(const std::string& dir,
                                              const std::string& out,
                                              const ShardOptions& options) {
  const absl::StatusOr<ShardLayout> layout = internal::ReadLayout(dir);
  if (!layout.ok()) return layout.status();
  const absl::StatusOr<FamilyTable> table = FamilyTable::Load(dir);
  if (!table.ok()) return table.status();
  return Joiner(dir, *layout, *table, options).Run(out);
}

}  // namespace espalier
