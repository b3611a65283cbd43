#ifndef ESPALIER_IO_INTERNAL_FOLDER_JOB_H_
#define ESPALIER_IO_INTERNAL_FOLDER_JOB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/atomic_directory.h"
#include "espalier/io/folder.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/internal/shard_hash.h"

namespace espalier::internal {

// Writes a folder file by file in OUT.partial, so that a killed run can be
// taken up: files appear there whole, or not at all. The plan, a text that
// tells source and settings, must be the same in every run. Whatever writes
// checkpoint folders that are resumed is one of these: CheckpointWriter,
// ShardCheckpoint, UnshardCheckpoint.
class FolderJob {
 public:
  // Takes up what is there and removes what a kill left half written. Fails as
  // ShardCheckpoint says.
  static absl::StatusOr<FolderJob> Open(const std::string& out,
                                        std::string plan, bool resume);
  // Before anything is written: RESOURCE_EXHAUSTED when there is no space for
  // `bytes`. A folder that was begun here is removed then.
  absl::Status Start(int64_t bytes);
  // Both. `files` are the names and sizes of all that will be written; space is
  // needed for those that are not there.
  static absl::StatusOr<FolderJob> Begin(
      const std::string& out, const std::string& plan,
      const std::vector<std::pair<std::string, int64_t>>& files, bool resume);

  const std::string& path() const { return dir_.path(); }
  const std::string& target() const { return dir_.target(); }
  std::string Path(const std::string& name) const { return dir_.Path(name); }
  // Whether an earlier run has finished the file; with `hash`, reads it.
  bool IsThere(const std::string& name, int64_t bytes,
               absl::string_view hash = "") const;
  // Streams a file to `name`, whose folders are made. It must have this hash:
  // DATA_LOSS otherwise.
  absl::Status Copy(const std::string& from, const std::string& name,
                    absl::string_view hash);
  absl::Status Copy(const ReadableFile& from, const std::string& name,
                    absl::string_view hash);
  // The hashes of a safetensors file that an earlier run finished; none where
  // it has not, or where the file was damaged since: it is read.
  std::optional<ShardHashes> FindShard(const std::string& name) const;
  absl::Status NoteShard(const std::string& name,
                         const ShardHashes& hashes) const;
  // A text about a finished file, for the next run; kept beside the plan. Not
  // flushed: a note that is lost or cut is a file to write again.
  absl::Status Note(const std::string& name, const std::string& text) const;
  std::string NoteOf(const std::string& name) const;  // "" none
  void ForgetNotes() const;
  // Removes plan and notes; the folder appears under its name.
  absl::Status Finish();

 private:
  FolderJob(AtomicDirectory dir, std::string plan)
      : dir_(std::move(dir)), plan_(std::move(plan)) {}
  std::string NotePath(const std::string& name) const;

  AtomicDirectory dir_;
  std::string plan_;  // empty once it is in the folder
};

// What tells a file from its later versions without reading it: name, size, and
// time of the last change; an object has a version instead.
absl::StatusOr<std::string> VersionOf(const Folder& folder,
                                      const std::string& name);

// XXH3-64 of a whole file, or of its first `bytes`.
absl::StatusOr<std::string> HashFile(const std::string& path,
                                     int64_t bytes = -1);
absl::StatusOr<std::string> HashFile(const ReadableFile& file,
                                     int64_t bytes = -1);

// Whether `name` is a path below a folder: plain names between slashes.
bool IsPathBelow(absl::string_view name);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_FOLDER_JOB_H_
