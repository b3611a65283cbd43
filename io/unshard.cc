#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "espalier/io/atomic_file.h"
#include "espalier/io/content_hash.h"
#include "espalier/io/family_table.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/internal/folder_job.h"
#include "espalier/io/internal/nested_folders.h"
#include "espalier/io/internal/piece_copy.h"
#include "espalier/io/internal/piece_finder.h"
#include "espalier/io/internal/shard_hash.h"
#include "espalier/io/internal/sharded_folder.h"
#include "espalier/io/shard.h"

namespace espalier {

namespace {

using internal::PieceFinder;
using internal::ShardedFolder;
using internal::ShardLayout;

constexpr size_t kMaxOpenFiles = 24;

class Joiner {
 public:
  Joiner(const ShardedFolder& folder, const FamilyTable& table,
         const ShardOptions& options)
      : folder_(folder),
        layout_(folder.layout()),
        finder_(folder, table),
        options_(options) {}

  absl::StatusOr<ShardReport> Run(const std::string& out) {
    absl::Status status = CheckFiles();
    if (!status.ok()) return status;
    if (options_.dry_run) return FindAll(out);
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
    status = finder_.CheckAll(/*content=*/true);
    if (!status.ok()) {
      // What was written from wrong data is not to be taken up.
      job->ForgetNotes();
      return status;
    }
    status = CopyOthers(*job);
    if (status.ok()) status = job->Finish();
    if (!status.ok()) return status;
    return report_;
  }

 private:
  using Pieces = PieceFinder::Pieces;
  using Header = ShardedFolder::Header;

  // What a run would put together, every piece of it found.
  absl::StatusOr<ShardReport> FindAll(const std::string& out) {
    report_.out = out;
    report_.num_files = static_cast<int64_t>(layout_.sources.size());
    report_.left_out = layout_.left_out;
    for (const ShardLayout::Source& source : layout_.sources) {
      const absl::StatusOr<Header> header = folder_.ReadHeader(source);
      if (!header.ok()) return header.status();
      for (const SafetensorsEntry& entry : header->parsed.entries) {
        const absl::StatusOr<Pieces> pieces = PiecesOf(entry);
        if (!pieces.ok()) return pieces.status();
        ++report_.num_tensors;
      }
      report_.total_bytes += source.num_bytes - source.header_bytes;
    }
    absl::Status status = finder_.CheckAll(/*content=*/false);
    if (!status.ok()) return status;
    return report_;
  }

  // All that can be seen without reading data.
  absl::Status CheckFiles() {
    for (uint32_t f = 0; f < layout_.files.size(); ++f) {
      const absl::StatusOr<SafetensorsFile> file =
          folder_.OpenPieces(layout_.files[f]);
      if (!file.ok()) return file.status();
      finder_.Add(f, *file);
    }
    for (const ShardLayout::Source& source : layout_.sources) {
      const absl::StatusOr<Header> header = folder_.ReadHeader(source);
      if (!header.ok()) return header.status();
    }
    for (const ShardLayout::Copied& copied : layout_.copied) {
      absl::Status status = folder_.CheckCopied(copied, /*content=*/false);
      if (!status.ok()) return status;
    }
    return folder_.CheckIndex();
  }

  // Kept open for the tensors that follow; std::map keeps addresses.
  absl::StatusOr<const internal::ReadableFile*> Opened(uint32_t file) {
    const auto found = open_.find(file);
    if (found != open_.end()) return &found->second;
    absl::StatusOr<internal::ReadableFile> opened =
        folder_.folder().Open(layout_.files[file].name);
    if (!opened.ok()) return opened.status();
    return &open_.emplace(file, *std::move(opened)).first->second;
  }

  absl::Status WriteSource(const ShardLayout::Source& source,
                           internal::FolderJob& job) {
    const absl::StatusOr<Header> header = folder_.ReadHeader(source);
    if (!header.ok()) return header.status();
    const std::vector<SafetensorsEntry>& entries = header->parsed.entries;
    report_.num_tensors += static_cast<int64_t>(entries.size());
    report_.total_bytes += source.num_bytes - source.header_bytes;
    if (job.IsThere(source.name, source.num_bytes)) {
      const absl::StatusOr<bool> whole = TakeUp(source, *header, job);
      if (!whole.ok()) return whole.status();
      if (*whole) {
        ++report_.num_taken_up;
        return absl::OkStatus();
      }
    }
    absl::StatusOr<AtomicFile> file =
        AtomicFile::Create(job.Path(source.name), source.num_bytes);
    if (!file.ok()) return file.status();
    absl::Status status = file->WriteAt(
        0, absl::MakeConstSpan(
               reinterpret_cast<const uint8_t*>(header->bytes.data()),
               header->bytes.size()));
    std::vector<uint64_t> hashes;
    for (const SafetensorsEntry& entry : entries) {
      if (status.ok()) {
        status = JoinTensor(entry, source.header_bytes, *file, &hashes);
      }
    }
    if (status.ok()) status = file->Commit();
    if (status.ok()) {
      status = job.Note(source.name, internal::HashOfHashes(hashes));
    }
    return status.ok() ? Step() : status;
  }

  absl::StatusOr<Pieces> PiecesOf(const SafetensorsEntry& entry) {
    absl::StatusOr<Pieces> pieces = finder_.Find(entry);
    if (!pieces.ok()) return pieces.status();
    while (hashers_.size() < pieces->places.size()) hashers_.emplace_back();
    for (ContentHasher& hasher : hashers_) hasher.Reset();
    report_.num_pieces += static_cast<int64_t>(pieces->places.size());
    return pieces;
  }

  // What the hashers saw are the places' bytes.
  void NoteContent(const Pieces& pieces, std::vector<uint64_t>* hashes) {
    for (size_t i = 0; i < pieces.places.size(); ++i) {
      pieces.places[i]->content = hashers_[i].Digest();
      hashes->push_back(pieces.places[i]->content);
    }
  }

  // Whether a file of an earlier run is still what that run wrote; then its
  // pieces are known without reading them here.
  absl::StatusOr<bool> TakeUp(const ShardLayout::Source& source,
                              const Header& header,
                              const internal::FolderJob& job) {
    const std::string note = job.NoteOf(source.name);
    const absl::StatusOr<std::string> hash =
        internal::HashFile(job.Path(source.name), source.header_bytes);
    if (note.empty() || !hash.ok() || *hash != source.header_hash) return false;
    const absl::StatusOr<internal::ReadableFile> file =
        internal::ReadableFile::Open(job.Path(source.name));
    if (!file.ok()) return file.status();
    std::vector<uint64_t> hashes;
    const int64_t num_pieces = report_.num_pieces;
    for (const SafetensorsEntry& entry : header.parsed.entries) {
      const absl::StatusOr<Pieces> pieces = PiecesOf(entry);
      if (!pieces.ok()) return pieces.status();
      for (size_t i = 0; i < pieces->places.size(); ++i) {
        absl::Status status = copier_.Read(
            *file, source.header_bytes + entry.begin, pieces->cut,
            pieces->cut.pieces[i], [&](absl::Span<const uint8_t> bytes) {
              hashers_[i].Update(bytes);
              return absl::OkStatus();
            });
        if (!status.ok()) return status;
      }
      NoteContent(*pieces, &hashes);
    }
    if (internal::HashOfHashes(hashes) == note) return true;
    report_.num_pieces = num_pieces;  // they are joined again
    return false;
  }

  absl::Status JoinTensor(const SafetensorsEntry& entry, int64_t data_start,
                          AtomicFile& file, std::vector<uint64_t>* hashes) {
    const absl::StatusOr<Pieces> pieces = PiecesOf(entry);
    if (!pieces.ok()) return pieces.status();
    if (open_.size() + pieces->places.size() > kMaxOpenFiles) open_.clear();
    std::vector<internal::PieceCopier::Part> parts;
    for (size_t i = 0; i < pieces->places.size(); ++i) {
      const absl::StatusOr<const internal::ReadableFile*> opened =
          Opened(pieces->places[i]->file);
      if (!opened.ok()) return opened.status();
      parts.push_back({&pieces->cut.pieces[i], *opened,
                       pieces->places[i]->offset, &hashers_[i]});
    }
    absl::Status status = copier_.Join(
        parts, pieces->cut, [&](int64_t at, absl::Span<const uint8_t> bytes) {
          return file.WriteAt(data_start + entry.begin + at, bytes);
        });
    if (status.ok()) NoteContent(*pieces, hashes);
    return status;
  }

  absl::Status Copy(const std::string& from, const std::string& name,
                    const std::string& hash, internal::FolderJob& job) const {
    const absl::StatusOr<internal::ReadableFile> file =
        folder_.folder().Open(from);
    return file.ok() ? job.Copy(*file, name, hash) : file.status();
  }

  absl::Status CopyOthers(internal::FolderJob& job) const {
    if (!layout_.index_hash.empty()) {
      absl::Status status = Copy(internal::OriginalIndexName(),
                                 internal::kIndexName, layout_.index_hash, job);
      if (!status.ok()) return status;
    }
    for (const ShardLayout::Copied& copied : layout_.copied) {
      if (job.IsThere(copied.name, copied.num_bytes, copied.hash)) continue;
      absl::Status status = Copy(copied.name, copied.name, copied.hash, job);
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

  const ShardedFolder& folder_;
  const ShardLayout& layout_;
  PieceFinder finder_;
  const ShardOptions& options_;
  std::map<uint32_t, internal::ReadableFile> open_;
  internal::PieceCopier copier_;
  std::deque<ContentHasher> hashers_;  // one for each piece of a tensor
  ShardReport report_;
};

}  // namespace

absl::StatusOr<ShardReport> UnshardCheckpoint(const std::string& dir,
                                              const std::string& out,
                                              const ShardOptions& options) {
  absl::Status apart = internal::CheckApart(dir, out);
  if (!apart.ok()) return apart;
  const absl::StatusOr<ShardedFolder> folder =
      ShardedFolder::Open(Folder::Local(dir));
  if (!folder.ok()) return folder.status();
  const absl::StatusOr<FamilyTable> table = FamilyTable::Load(folder->folder());
  if (!table.ok()) return table.status();
  return Joiner(*folder, *table, options).Run(out);
}

}  // namespace espalier
