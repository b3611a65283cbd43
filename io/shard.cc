#include "espalier/io/shard.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "espalier/io/atomic_file.h"
#include "espalier/io/content_hash.h"
#include "espalier/io/family_table.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/internal/folder_job.h"
#include "espalier/io/internal/nested_folders.h"
#include "espalier/io/internal/piece_copy.h"
#include "espalier/io/internal/shard_layout.h"
#include "espalier/io/internal/sharded_folder.h"
#include "espalier/io/internal/table_check.h"
#include "espalier/io/internal/tensor_cut.h"
#include "espalier/io/safetensors_reader.h"
#include "espalier/io/safetensors_writer.h"
#include "espalier/io/tensor_catalog.h"

namespace espalier {

namespace {

using internal::PieceGroup;
using internal::ShardLayout;
using internal::TensorCut;

// A file's plan and header are in memory while it is written.
constexpr int64_t kMaxTensorsInFile = 50'000;

absl::Status CheckMesh(const FamilyTable& table, const ShardMesh& mesh) {
  const auto axis = [](const char* name, int64_t size, int64_t limit) {
    return size >= 1 && size <= limit
               ? absl::OkStatus()
               : absl::OutOfRangeError(absl::StrCat(name, " is ", size,
                                                    ", expected 1 to ", limit));
  };
  absl::Status status = axis("tp", mesh.tp, kMaxMeshAxis);
  if (status.ok()) status = axis("etp", mesh.etp, kMaxMeshAxis);
  if (status.ok()) status = axis("pp", mesh.pp, table.max_stages());
  if (status.ok()) {
    status =
        axis("ep", mesh.ep, std::max<int64_t>(1, table.facts().num_experts));
  }
  return status;
}

class Sharder {
 public:
  Sharder(const TensorCatalog& catalog, const FamilyTable& table,
          const ShardOptions& options)
      : catalog_(catalog),
        folder_(*catalog.folder()),
        table_(table),
        options_(options) {
    layout_.mesh = options.mesh;
    layout_.max_shard_bytes = options.max_shard_bytes;
  }

  absl::StatusOr<ShardReport> Run(const std::string& out) {
    absl::Status status = PlanPieces();
    if (status.ok()) status = PlanSources();
    if (status.ok()) status = PlanOthers();
    if (!status.ok()) return status;
    report_.out = out;
    report_.num_tensors = static_cast<int64_t>(catalog_.tensors().size());
    report_.total_bytes = catalog_.total_bytes();
    report_.left_out = layout_.left_out;
    const absl::StatusOr<std::string> plan = internal::WriteLayout(layout_);
    if (!plan.ok()) return plan.status();
    if (options_.dry_run) return report_;
    absl::StatusOr<internal::FolderJob> job = internal::FolderJob::Begin(
        out, absl::StrCat("shard ", versions_, "\n", *plan), FilesToWrite(),
        options_.resume);
    if (!job.ok()) return job.status();
    for (size_t i = 0; i < layout_.files.size() && status.ok(); ++i) {
      status = WriteFile(i, *job);
    }
    if (status.ok()) status = WriteOriginal(*job);
    if (!status.ok()) return status;
    const absl::StatusOr<std::string> written = internal::WriteLayout(layout_);
    if (!written.ok()) return written.status();
    status = WriteFileAtomically(job->Path(internal::kShardsName), *written);
    if (status.ok()) status = job->Finish();
    if (!status.ok()) return status;
    return report_;
  }

 private:
  struct PieceRef {
    uint32_t tensor = 0;
    uint32_t piece = 0;
  };

  absl::StatusOr<TensorCut> Cut(const TensorCatalog::Tensor& tensor) const {
    const absl::string_view name = catalog_.NameOf(tensor);
    FamilyTable::Match match;
    if (!table_.Find(name, tensor.dtype, &match)) {
      return internal::WholeTensor(catalog_.ShapeOf(tensor), tensor.num_bytes,
                                   {});
    }
    return internal::CutTensor(table_, match, name, catalog_.ShapeOf(tensor),
                               tensor.dtype, options_.mesh);
  }

  // Pieces of every group in the order of the source, cut into files.
  absl::Status PlanPieces() {
    std::map<PieceGroup, std::vector<PieceRef>> groups;
    for (uint32_t t = 0; t < catalog_.tensors().size(); ++t) {
      const absl::StatusOr<TensorCut> cut = Cut(catalog_.tensors()[t]);
      if (!cut.ok()) return cut.status();
      for (uint32_t p = 0; p < cut->pieces.size(); ++p) {
        groups[cut->pieces[p].group].push_back({t, p});
        ++report_.num_pieces;
      }
    }
    for (auto& [group, pieces] : groups) {
      const size_t first_file = layout_.files.size();
      for (const PieceRef& ref : pieces) {
        const absl::StatusOr<TensorCut> cut =
            Cut(catalog_.tensors()[ref.tensor]);
        if (!cut.ok()) return cut.status();
        const int64_t bytes = cut->PieceBytes(cut->pieces[ref.piece]);
        const bool begin =
            layout_.files.size() == first_file ||
            layout_.files.back().num_tensors == kMaxTensorsInFile ||
            layout_.files.back().data_bytes > options_.max_shard_bytes - bytes;
        if (begin) {
          layout_.files.emplace_back().group = group;
          first_piece_.push_back(pieces_.size());
        }
        ++layout_.files.back().num_tensors;
        layout_.files.back().data_bytes += bytes;
        pieces_.push_back(ref);
      }
      pieces = {};
      const size_t count = layout_.files.size() - first_file;
      for (size_t i = 0; i < count; ++i) {
        layout_.files[first_file + i].name =
            absl::StrFormat("%s-%05d-of-%05d.safetensors",
                            internal::ToString(group), i + 1, count);
      }
    }
    first_piece_.push_back(pieces_.size());
    report_.num_files = static_cast<int64_t>(layout_.files.size());
    return absl::OkStatus();
  }

  // Of a file of the source.
  absl::StatusOr<std::string> Hash(const std::string& name,
                                   int64_t bytes = -1) const {
    const absl::StatusOr<internal::ReadableFile> file = folder_.Open(name);
    return file.ok() ? internal::HashFile(*file, bytes) : file.status();
  }
  absl::Status Copy(const std::string& from, const std::string& name,
                    const std::string& hash, internal::FolderJob& job) const {
    const absl::StatusOr<internal::ReadableFile> file = folder_.Open(from);
    return file.ok() ? job.Copy(*file, name, hash) : file.status();
  }

  absl::Status PlanSources() {
    for (const TensorCatalog::File& file : catalog_.files()) {
      const absl::StatusOr<std::string> hash = Hash(file.name, file.data_start);
      if (!hash.ok()) return hash.status();
      layout_.sources.push_back(
          {file.name, file.file_bytes, file.data_start, *hash});
      const absl::StatusOr<std::string> version =
          internal::VersionOf(folder_, file.name);
      if (!version.ok()) return version.status();
      versions_ += *version;
    }
    return absl::OkStatus();
  }

  // All other files of the folder, at any depth.
  absl::Status PlanOthers() {
    if (catalog_.has_index()) {
      absl::StatusOr<std::string> hash = Hash(internal::kIndexName);
      if (!hash.ok()) return hash.status();
      layout_.index_hash = *std::move(hash);
    }
    const absl::StatusOr<std::vector<std::string>> names =
        folder_.List(/*deep=*/true);
    if (!names.ok()) return names.status();
    absl::flat_hash_set<absl::string_view> weights = {internal::kIndexName};
    for (const TensorCatalog::File& file : catalog_.files()) {
      weights.insert(file.name);
    }
    for (const std::string& name : *names) {
      if (name == internal::kShardsName ||
          absl::StartsWith(name, absl::StrCat(internal::kOriginalDir, "/"))) {
        return absl::InvalidArgumentError(absl::StrCat(
            catalog_.dir(), ": holds ", name, ", so it is sharded already"));
      }
      if (weights.contains(name)) continue;
      const absl::StatusOr<internal::ReadableFile> file = folder_.Open(name);
      if (absl::EndsWith(name, ".safetensors") || !file.ok()) {
        layout_.left_out.push_back(name);
        continue;
      }
      const absl::StatusOr<std::string> hash = internal::HashFile(*file);
      if (!hash.ok()) return hash.status();
      layout_.copied.push_back({name, file->size(), *hash});
    }
    return absl::OkStatus();
  }

  std::vector<std::pair<std::string, int64_t>> FilesToWrite() const {
    std::vector<std::pair<std::string, int64_t>> files;
    constexpr int64_t kHeaderBytes = 400;  // of a tensor, at most about
    for (const ShardLayout::File& file : layout_.files) {
      files.emplace_back(file.name,
                         file.data_bytes + file.num_tensors * kHeaderBytes);
    }
    for (const ShardLayout::Source& source : layout_.sources) {
      files.emplace_back(internal::HeaderName(source), source.header_bytes);
    }
    for (const ShardLayout::Copied& copied : layout_.copied) {
      files.emplace_back(copied.name, copied.num_bytes);
    }
    return files;
  }

  absl::Status WriteFile(size_t index, internal::FolderJob& job) {
    ShardLayout::File& file = layout_.files[index];
    done_bytes_ += file.data_bytes;
    if (const auto finished = job.FindShard(file.name)) {
      file.hashes = *finished;
      ++report_.num_taken_up;
      return absl::OkStatus();
    }
    const std::string path = job.Path(file.name);
    std::vector<TensorSpec> specs;
    for (size_t p = first_piece_[index]; p < first_piece_[index + 1]; ++p) {
      const TensorCatalog::Tensor& tensor =
          catalog_.tensors()[pieces_[p].tensor];
      absl::StatusOr<TensorCut> cut = Cut(tensor);
      if (!cut.ok()) return cut.status();
      specs.push_back({std::string(catalog_.NameOf(tensor)), tensor.dtype,
                       std::move(cut->pieces[pieces_[p].piece].shape)});
    }
    absl::StatusOr<SafetensorsWriter> writer = SafetensorsWriter::Create(
        path, specs,
        {{"format", "pt"}, {"espalier_group", internal::ToString(file.group)}});
    if (!writer.ok()) return writer.status();
    specs = {};
    absl::flat_hash_map<absl::string_view, uint64_t> hash_of;
    for (size_t p = first_piece_[index]; p < first_piece_[index + 1]; ++p) {
      absl::Status status = CopyPiece(pieces_[p], &*writer);
      if (!status.ok()) return status;
      hash_of[catalog_.NameOf(catalog_.tensors()[pieces_[p].tensor])] =
          hasher_.Digest();
    }
    std::vector<uint64_t> hashes;
    for (const SafetensorsEntry& entry : writer->entries()) {
      hashes.push_back(hash_of[entry.name]);
    }
    absl::Status status = writer->Finish();
    if (!status.ok()) return status;
    absl::StatusOr<std::string> header =
        internal::HashFile(path, writer->data_start());
    if (!header.ok()) return header.status();
    file.hashes = {*std::move(header), internal::HashOfHashes(hashes)};
    status = job.NoteShard(file.name, file.hashes);
    return status.ok() ? Step() : status;
  }

  // Leaves the piece's hash in hasher_.
  absl::Status CopyPiece(const PieceRef& ref, SafetensorsWriter* writer) {
    const TensorCatalog::Tensor& tensor = catalog_.tensors()[ref.tensor];
    const TensorCatalog::File& file = catalog_.files()[tensor.file];
    const std::string path = catalog_.PathOf(file);
    if (!source_ || source_->path() != path) {
      source_.reset();
      absl::StatusOr<internal::ReadableFile> opened = folder_.Open(file.name);
      if (!opened.ok()) return opened.status();
      if (opened->size() != file.file_bytes) {
        return absl::DataLossError(
            absl::StrCat(path, ": the file changed since it was looked at"));
      }
      source_.emplace(*std::move(opened));
    }
    const absl::StatusOr<TensorCut> cut = Cut(tensor);
    if (!cut.ok()) return cut.status();
    const absl::string_view name = catalog_.NameOf(tensor);
    hasher_.Reset();
    return copier_.Read(*source_, file.data_start + tensor.begin, *cut,
                        cut->pieces[ref.piece],
                        [&](absl::Span<const uint8_t> bytes) {
                          hasher_.Update(bytes);
                          return writer->Append(name, bytes);
                        });
  }

  // What unshard needs beside the tensors.
  absl::Status WriteOriginal(internal::FolderJob& job) {
    std::error_code error;
    std::filesystem::create_directories(job.Path(internal::kOriginalDir),
                                        error);
    bool wrote = false;
    for (const ShardLayout::Source& source : layout_.sources) {
      if (job.IsThere(internal::HeaderName(source), source.header_bytes,
                      source.header_hash)) {
        continue;
      }
      absl::Status status = WriteHeader(source, job);
      if (!status.ok()) return status;
      wrote = true;
    }
    absl::Status status;
    if (!layout_.index_hash.empty()) {
      status = Copy(internal::kIndexName, internal::OriginalIndexName(),
                    layout_.index_hash, job);
    }
    if (status.ok() && wrote) status = Step();
    for (const ShardLayout::Copied& copied : layout_.copied) {
      if (!status.ok()) return status;
      if (job.IsThere(copied.name, copied.num_bytes, copied.hash)) continue;
      status = Copy(copied.name, copied.name, copied.hash, job);
      if (status.ok()) status = Step();
    }
    return status;
  }

  absl::Status WriteHeader(const ShardLayout::Source& source,
                           internal::FolderJob& job) const {
    const absl::StatusOr<internal::ReadableFile> file =
        folder_.Open(source.name);
    if (!file.ok()) return file.status();
    std::string header(static_cast<size_t>(source.header_bytes), '\0');
    absl::Status status = file->ReadAt(
        0, absl::MakeSpan(reinterpret_cast<uint8_t*>(header.data()),
                          header.size()));
    if (!status.ok()) return status;
    return WriteFileAtomically(job.Path(internal::HeaderName(source)), header);
  }

  absl::Status Step() const {
    return options_.on_file ? options_.on_file(done_bytes_, report_.total_bytes)
                            : absl::OkStatus();
  }

  const TensorCatalog& catalog_;
  const Folder& folder_;
  const FamilyTable& table_;
  const ShardOptions& options_;
  ShardLayout layout_;
  std::string versions_;             // of the weight files, for the plan
  std::vector<PieceRef> pieces_;     // file by file
  std::vector<size_t> first_piece_;  // of each file, and the end
  std::optional<internal::ReadableFile> source_;
  internal::PieceCopier copier_;
  ContentHasher hasher_;
  int64_t done_bytes_ = 0;
  ShardReport report_;
};

}  // namespace

absl::StatusOr<ShardReport> ShardCheckpoint(const std::string& dir,
                                            const std::string& out,
                                            const ShardOptions& options) {
  return ShardCheckpoint(Folder::Local(dir), out, options);
}

absl::StatusOr<ShardReport> ShardCheckpoint(
    const std::shared_ptr<const Folder>& folder, const std::string& out,
    const ShardOptions& options) {
  if (options.max_shard_bytes < 1) {
    return absl::OutOfRangeError(
        absl::StrCat("max_shard_bytes is ", options.max_shard_bytes));
  }
  absl::Status status = internal::CheckApart(*folder, out);
  if (!status.ok()) return status;
  const absl::StatusOr<TensorCatalog> catalog = TensorCatalog::Open(folder);
  if (!catalog.ok()) return catalog.status();
  const absl::StatusOr<FamilyTable> table = FamilyTable::Load(*folder);
  if (!table.ok()) return table.status();
  status = CheckMesh(*table, options.mesh);
  if (!status.ok()) return status;
  ProblemList problems;
  ProblemList notes;
  internal::CheckAgainstTable(*catalog, *table, &problems, &notes);
  if (!problems.empty()) {
    const ProblemList::Kind& kind = problems.kinds()[0];
    return absl::DataLossError(absl::StrCat(
        folder->path(), ": ", problems.total(), " problems, the first: ",
        kind.name, " ", kind.first[0], "; see espalier verify"));
  }
  return Sharder(*catalog, *table, options).Run(out);
}

JsonValue ToJson(const ShardReport& report) {
  return JsonValue::Object{
      {"out", report.out},
      {"files", report.num_files},
      {"files_taken_up", report.num_taken_up},
      {"tensors", report.num_tensors},
      {"pieces", report.num_pieces},
      {"bytes", report.total_bytes},
      {"left_out",
       JsonValue::Array(report.left_out.begin(), report.left_out.end())}};
}

}  // namespace espalier
