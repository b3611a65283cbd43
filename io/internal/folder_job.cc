#include "espalier/io/internal/folder_job.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "espalier/io/atomic_file.h"
#include "espalier/io/content_hash.h"
#include "espalier/io/internal/disk_space.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/internal/sync.h"

namespace espalier::internal {

namespace {

constexpr char kPlanName[] = ".plan.json";
constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr int64_t kMaxPlanBytes = int64_t{256} << 20;
constexpr char kNotesDir[] = ".notes";
constexpr int64_t kMaxNoteBytes = 1 << 16;

// What a kill left half written.
void RemoveTemporaries(const std::string& root) {
  std::error_code error;
  std::vector<std::filesystem::path> found;
  for (std::filesystem::recursive_directory_iterator it(root, error), end;
       !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (absl::StartsWith(name, ".") && absl::StrContains(name, ".tmp-")) {
      found.push_back(it->path());
    }
  }
  for (const std::filesystem::path& path : found) {
    std::filesystem::remove(path, error);
  }
}

std::string NoteText(const ShardHashes& hashes) {
  return absl::StrCat(hashes.header, " ", hashes.data);
}

}  // namespace

absl::StatusOr<FolderJob> FolderJob::Open(const std::string& out,
                                          std::string plan, bool resume) {
  absl::StatusOr<AtomicDirectory> dir =
      AtomicDirectory::CreatePartial(out, resume);
  if (!dir.ok()) return dir.status();
  const std::string plan_path = dir->Path(kPlanName);
  std::error_code error;
  if (std::filesystem::exists(plan_path, error)) {
    const absl::StatusOr<std::string> old =
        ReadWholeFile(plan_path, kMaxPlanBytes);
    if (!old.ok()) return old.status();
    if (*old != plan) {
      return absl::FailedPreconditionError(absl::StrCat(
          dir->path(), " was begun with another source or other settings and ",
          "cannot be resumed; remove the folder to start again"));
    }
    plan = "";
  }
  // Of a kill before the plan was whole, too. Not at the end, where copies of
  // files with such names are.
  RemoveTemporaries(dir->path());
  return FolderJob(*std::move(dir), std::move(plan));
}

absl::Status FolderJob::Start(int64_t bytes) {
  const int64_t plan_bytes = static_cast<int64_t>(plan_.size());
  absl::Status status = CheckSpace(path(), target(), bytes + plan_bytes);
  if (plan_.empty()) return status;
  if (!status.ok()) {
    std::error_code ignored;
    std::filesystem::remove(path(), ignored);  // only when empty
    return status;
  }
  status = WriteFileAtomically(Path(kPlanName), plan_);
  plan_.clear();
  return status;
}

absl::StatusOr<FolderJob> FolderJob::Begin(
    const std::string& out, const std::string& plan,
    const std::vector<std::pair<std::string, int64_t>>& files, bool resume) {
  absl::StatusOr<FolderJob> job = Open(out, plan, resume);
  if (!job.ok()) return job.status();
  int64_t needed = 0;
  std::error_code error;
  for (const auto& [name, bytes] : files) {
    if (!std::filesystem::exists(job->Path(name), error)) needed += bytes;
  }
  absl::Status status = job->Start(needed);
  if (!status.ok()) return status;
  return job;
}

bool FolderJob::IsThere(const std::string& name, int64_t bytes,
                        absl::string_view hash) const {
  const absl::StatusOr<FileIdentity> identity = IdentityOf(dir_.Path(name));
  if (!identity.ok() || identity->size != bytes) return false;
  if (hash.empty()) return true;
  const absl::StatusOr<std::string> got = HashFile(dir_.Path(name));
  return got.ok() && *got == hash;
}

std::optional<ShardHashes> FolderJob::FindShard(const std::string& name) const {
  const std::string note = NoteOf(name);
  if (note.empty()) return std::nullopt;
  const absl::StatusOr<ShardHashes> hashes = HashShardFile(Path(name));
  if (!hashes.ok() || NoteText(*hashes) != note) return std::nullopt;
  return *hashes;
}

absl::Status FolderJob::NoteShard(const std::string& name,
                                  const ShardHashes& hashes) const {
  return Note(name, NoteText(hashes));
}

std::string FolderJob::NotePath(const std::string& name) const {
  return JoinPath(Path(kNotesDir), name);
}

absl::Status FolderJob::Note(const std::string& name,
                             const std::string& text) const {
  const std::string note = NotePath(name);
  std::error_code error;
  std::filesystem::create_directories(DirName(note), error);
  std::ofstream file(note, std::ios::binary);
  file << text;
  file.close();
  return file ? absl::OkStatus() : SystemError("write", note);
}

std::string FolderJob::NoteOf(const std::string& name) const {
  return ReadWholeFile(NotePath(name), kMaxNoteBytes).value_or("");
}

absl::Status FolderJob::Copy(const std::string& from, const std::string& name,
                             absl::string_view hash) {
  const absl::StatusOr<ReadableFile> source = ReadableFile::Open(from);
  return source.ok() ? Copy(*source, name, hash) : source.status();
}

absl::Status FolderJob::Copy(const ReadableFile& from, const std::string& name,
                             absl::string_view hash) {
  const std::string path = dir_.Path(name);
  std::error_code error;
  std::filesystem::create_directories(DirName(path), error);
  absl::StatusOr<AtomicFile> target = AtomicFile::Create(path, from.size());
  if (!target.ok()) return target.status();
  ContentHasher hasher;
  std::vector<uint8_t> buffer(
      static_cast<size_t>(std::min(from.size(), kPieceBytes)));
  for (int64_t at = 0; at < from.size();
       at += static_cast<int64_t>(buffer.size())) {
    const absl::Span<uint8_t> piece = absl::MakeSpan(buffer).subspan(
        0, static_cast<size_t>(from.size() - at));
    absl::Status status = from.ReadAt(at, piece);
    if (status.ok()) status = target->WriteAt(at, piece);
    if (!status.ok()) return status;
    hasher.Update(piece);
  }
  if (hasher.HexDigest() != hash) {
    return absl::DataLossError(absl::StrCat(
        from.path(), ": hash ", hasher.HexDigest(), ", expected ", hash));
  }
  return target->Commit();
}

void FolderJob::ForgetNotes() const {
  std::error_code ignored;
  std::filesystem::remove_all(Path(kNotesDir), ignored);
}

absl::Status FolderJob::Finish() {
  std::error_code error;
  std::filesystem::remove(dir_.Path(kPlanName), error);
  ForgetNotes();
  return dir_.Commit();
}

absl::StatusOr<std::string> VersionOf(const Folder& folder,
                                      const std::string& name) {
  const absl::StatusOr<ReadableFile> file = folder.Open(name);
  if (!file.ok()) return file.status();
  const FileIdentity& identity = file->identity();
  std::string text =
      absl::StrCat(name, " ", identity.size, " ", identity.modified_ns, ";");
  if (!folder.is_local()) absl::StrAppend(&text, identity.inode, ";");
  return text;
}

absl::StatusOr<std::string> HashFile(const std::string& path, int64_t bytes) {
  const absl::StatusOr<ReadableFile> file = ReadableFile::Open(path);
  return file.ok() ? HashFile(*file, bytes) : file.status();
}

absl::StatusOr<std::string> HashFile(const ReadableFile& file, int64_t bytes) {
  const int64_t end = bytes < 0 ? file.size() : bytes;
  ContentHasher hasher;
  std::vector<uint8_t> buffer(static_cast<size_t>(std::min(end, kPieceBytes)));
  for (int64_t at = 0; at < end; at += static_cast<int64_t>(buffer.size())) {
    const absl::Span<uint8_t> piece =
        absl::MakeSpan(buffer).subspan(0, static_cast<size_t>(end - at));
    if (absl::Status status = file.ReadAt(at, piece); !status.ok()) {
      return status;
    }
    hasher.Update(piece);
  }
  return hasher.HexDigest();
}

bool IsPathBelow(absl::string_view name) {
  for (const absl::string_view word : absl::StrSplit(name, '/')) {
    if (!IsBareFileName(word)) return false;
  }
  return true;
}

}  // namespace espalier::internal
