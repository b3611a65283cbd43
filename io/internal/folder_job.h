#ifndef ESPALIER_IO_INTERNAL_FOLDER_JOB_H_
#define ESPALIER_IO_INTERNAL_FOLDER_JOB_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/atomic_directory.h"
#include "espalier/io/folder.h"
#include "espalier/io/internal/file.h"

namespace espalier::internal {

// Writes a folder file by file in OUT.partial, so that a killed run can be
// taken up: files appear there whole, or not at all. The plan, a text that
// tells source and settings, must be the same in every run.
class FolderJob {
 public:
  // `files` are the names and sizes of all that will be written; space is
  // needed for those that are not there. Fails as ShardCheckpoint says.
  static absl::StatusOr<FolderJob> Begin(
      const std::string& out, const std::string& plan,
      const std::vector<std::pair<std::string, int64_t>>& files, bool resume);

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
  // A text about a finished file, for the next run; kept beside the plan.
  absl::Status Note(const std::string& name, const std::string& text) const;
  std::string NoteOf(const std::string& name) const;  // "" none
  void ForgetNotes() const;
  // Removes plan and notes; the folder appears under its name.
  absl::Status Finish();

 private:
  explicit FolderJob(AtomicDirectory dir) : dir_(std::move(dir)) {}

  AtomicDirectory dir_;
};

// The notes of a folder that is being written. Not flushed: a note that is lost
// or cut is a file to write again.
absl::Status WriteNote(const std::string& root, const std::string& name,
                       const std::string& text);
std::string ReadNote(const std::string& root, const std::string& name);
void RemoveNotes(const std::string& root);

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
