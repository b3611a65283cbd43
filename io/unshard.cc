#include <algorithm>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/atomic_file.h"
#include "espalier/io/content_hash.h"
#include "espalier/io/family_table.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/internal/folder_job.h"
#include "espalier/io/internal/nested_folders.h"
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
    status = CheckContent();
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
  // A tensor's piece in this folder, found by a hash of its name.
  struct Place {
    uint64_t hash = 0;
    int64_t offset = 0;
    int64_t num_bytes = 0;
    uint64_t content = 0;  // hash of its bytes, once they are read
    uint32_t file = 0;
    uint32_t index = 0;  // of the file's tensors
    bool met = false;
  };

  // A tensor's pieces, in this folder and in the tensor.
  struct Pieces {
    TensorCut cut;
    std::vector<Place*> places;  // one for each of cut.pieces
  };

  struct Header {
    std::string bytes;  // length field and JSON
    SafetensorsHeader parsed;
  };

  static uint64_t HashName(absl::string_view name) {
    return absl::Hash<absl::string_view>()(name);
  }

  absl::Status Wrong(const std::string& name, absl::string_view what,
                     absl::string_view got, absl::string_view expected) const {
    return absl::DataLossError(absl::StrCat(
        internal::JoinPath(dir_, name), ": ", what, " ", got, ", expected ",
        expected, " (", internal::kShardsName, ")"));
  }

  // What a run would put together, every piece of it found.
  absl::StatusOr<ShardReport> FindAll(const std::string& out) {
    report_.out = out;
    report_.num_files = static_cast<int64_t>(layout_.sources.size());
    report_.left_out = layout_.left_out;
    for (const ShardLayout::Source& source : layout_.sources) {
      const absl::StatusOr<Header> header = ReadHeader(source);
      if (!header.ok()) return header.status();
      for (const SafetensorsEntry& entry : header->parsed.entries) {
        const absl::StatusOr<Pieces> pieces = PiecesOf(entry);
        if (!pieces.ok()) return pieces.status();
        ++report_.num_tensors;
      }
      report_.total_bytes += source.num_bytes - source.header_bytes;
    }
    return report_;
  }

  // All that can be seen without reading data.
  absl::Status CheckFiles() {
    for (uint32_t f = 0; f < layout_.files.size(); ++f) {
      if (absl::Status s = FindPieces(f); !s.ok()) return s;
    }
    std::sort(places_.begin(), places_.end(),
              [](const Place& a, const Place& b) {
                return std::pair(a.hash, a.file) < std::pair(b.hash, b.file);
              });
    for (const ShardLayout::Source& source : layout_.sources) {
      const absl::StatusOr<Header> header = ReadHeader(source);
      if (!header.ok()) return header.status();
    }
    for (const ShardLayout::Copied& copied : layout_.copied) {
      const absl::StatusOr<internal::FileIdentity> identity =
          internal::IdentityOf(internal::JoinPath(dir_, copied.name));
      if (!identity.ok()) return identity.status();
      if (identity->size != copied.num_bytes) {
        return Wrong(copied.name, "bytes", absl::StrCat(identity->size),
                     absl::StrCat(copied.num_bytes));
      }
    }
    return CheckIndex();
  }

  absl::Status CheckIndex() const {
    const std::string name = IndexName();
    std::error_code error;
    if (layout_.index_hash.empty()) {
      return std::filesystem::exists(internal::JoinPath(dir_, name), error)
                 ? Wrong(name, "a file", "that is there", "none")
                 : absl::OkStatus();
    }
    const absl::StatusOr<std::string> hash =
        internal::HashFile(internal::JoinPath(dir_, name));
    if (!hash.ok()) return hash.status();
    return *hash == layout_.index_hash
               ? absl::OkStatus()
               : Wrong(name, "hash", *hash, layout_.index_hash);
  }

  absl::Status FindPieces(uint32_t number) {
    const ShardLayout::File& file = layout_.files[number];
    const std::string path = internal::JoinPath(dir_, file.name);
    const absl::StatusOr<SafetensorsFile> opened =
        SafetensorsFile::Open(path, ReadMode::kRead);
    if (!opened.ok()) return opened.status();
    const int64_t num_tensors = static_cast<int64_t>(opened->entries().size());
    const int64_t data_bytes = opened->file_bytes() - opened->data_start();
    if (num_tensors != file.num_tensors) {
      return Wrong(file.name, "tensors", absl::StrCat(num_tensors),
                   absl::StrCat(file.num_tensors));
    }
    if (data_bytes != file.data_bytes) {
      return Wrong(file.name, "data_bytes", absl::StrCat(data_bytes),
                   absl::StrCat(file.data_bytes));
    }
    const absl::StatusOr<std::string> hash =
        internal::HashFile(path, opened->data_start());
    if (!hash.ok()) return hash.status();
    if (*hash != file.hashes.header) {
      return Wrong(file.name, "header hash", *hash, file.hashes.header);
    }
    for (const SafetensorsEntry& entry : opened->entries()) {
      Place place;
      place.hash = HashName(entry.name);
      place.offset = opened->data_start() + entry.begin;
      place.num_bytes = entry.num_bytes();
      place.file = number;
      place.index = static_cast<uint32_t>(&entry - opened->entries().data());
      places_.push_back(place);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Place*> PlaceOf(absl::string_view name,
                                 const PieceGroup& group, int64_t num_bytes) {
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

  static std::string HeaderName(const ShardLayout::Source& source) {
    return absl::StrCat(internal::kOriginalDir, "/", source.name, ".header");
  }
  static std::string IndexName() {
    return absl::StrCat(internal::kOriginalDir, "/", internal::kIndexName);
  }

  absl::StatusOr<Header> ReadHeader(const ShardLayout::Source& source) const {
    const std::string path = internal::JoinPath(dir_, HeaderName(source));
    absl::StatusOr<std::string> bytes = internal::ReadWholeFile(
        path, kMaxSafetensorsHeaderBytes + int64_t{kLengthBytes});
    if (!bytes.ok()) return bytes.status();
    const std::string hash = HexOf(ContentHash(*bytes));
    if (hash != source.header_hash) {
      return Wrong(HeaderName(source), "hash", hash, source.header_hash);
    }
    if (static_cast<int64_t>(bytes->size()) != source.header_bytes) {
      return Wrong(HeaderName(source), "bytes", absl::StrCat(bytes->size()),
                   absl::StrCat(source.header_bytes));
    }
    absl::StatusOr<SafetensorsHeader> parsed =
        ParseSafetensorsHeader(absl::string_view(*bytes).substr(kLengthBytes),
                               source.num_bytes - source.header_bytes);
    if (!parsed.ok()) {
      return absl::DataLossError(absl::StrCat(
          path, ": for a file of ", source.num_bytes, " bytes, as ",
          internal::kShardsName, " has it: ", parsed.status().message()));
    }
    return Header{*std::move(bytes), *std::move(parsed)};
  }

  absl::Status WriteSource(const ShardLayout::Source& source,
                           internal::FolderJob& job) {
    const absl::StatusOr<Header> header = ReadHeader(source);
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
    FamilyTable::Match match;
    absl::StatusOr<TensorCut> cut =
        internal::WholeTensor(entry.shape, entry.num_bytes(), {});
    if (table_.Find(entry.name, entry.dtype, &match)) {
      cut = internal::CutTensor(table_, match, entry.name, entry.shape,
                                entry.dtype, layout_.mesh);
    }
    if (!cut.ok()) return cut.status();
    Pieces pieces = {*std::move(cut), {}};
    for (const internal::TensorPiece& piece : pieces.cut.pieces) {
      const absl::StatusOr<Place*> place =
          PlaceOf(entry.name, piece.group, pieces.cut.PieceBytes(piece));
      if (!place.ok()) return place.status();
      pieces.places.push_back(*place);
    }
    while (hashers_.size() < pieces.places.size()) hashers_.emplace_back();
    for (ContentHasher& hasher : hashers_) hasher.Reset();
    report_.num_pieces += static_cast<int64_t>(pieces.places.size());
    return pieces;
  }

  // What the hashers saw are the places' bytes.
  void NoteContent(const Pieces& pieces, std::vector<uint64_t>* hashes) {
    for (size_t i = 0; i < pieces.places.size(); ++i) {
      pieces.places[i]->content = hashers_[i].Digest();
      pieces.places[i]->met = true;
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

  // Every file's data were read, and are those that were written.
  absl::Status CheckContent() {
    std::sort(places_.begin(), places_.end(),
              [](const Place& a, const Place& b) {
                return std::pair(a.file, a.index) < std::pair(b.file, b.index);
              });
    auto place = places_.begin();
    for (uint32_t f = 0; f < layout_.files.size(); ++f) {
      const ShardLayout::File& file = layout_.files[f];
      std::vector<uint64_t> hashes;
      for (; place != places_.end() && place->file == f; ++place) {
        if (!place->met) {
          return absl::DataLossError(
              absl::StrCat(internal::JoinPath(dir_, file.name), ": tensor ",
                           place->index, " of ", file.num_tensors,
                           " belongs to no file of the original folder"));
        }
        hashes.push_back(place->content);
      }
      const std::string hash = internal::HashOfHashes(hashes);
      if (hash != file.hashes.data) {
        return Wrong(file.name, "data hash", hash, file.hashes.data);
      }
    }
    return absl::OkStatus();
  }

  absl::Status CopyOthers(internal::FolderJob& job) {
    if (!layout_.index_hash.empty()) {
      absl::Status status = job.Copy(internal::JoinPath(dir_, IndexName()),
                                     internal::kIndexName, layout_.index_hash);
      if (!status.ok()) return status;
    }
    for (const ShardLayout::Copied& copied : layout_.copied) {
      if (job.IsThere(copied.name, copied.num_bytes, copied.hash)) continue;
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
  std::deque<ContentHasher> hashers_;  // one for each piece of a tensor
  ShardReport report_;
};

}  // namespace

absl::StatusOr<ShardReport> UnshardCheckpoint(const std::string& dir,
                                              const std::string& out,
                                              const ShardOptions& options) {
  absl::Status apart = internal::CheckApart(dir, out);
  if (!apart.ok()) return apart;
  const absl::StatusOr<ShardLayout> layout = internal::ReadLayout(dir);
  if (!layout.ok()) return layout.status();
  const absl::StatusOr<FamilyTable> table = FamilyTable::Load(dir);
  if (!table.ok()) return table.status();
  return Joiner(dir, *layout, *table, options).Run(out);
}

}  // namespace espalier
