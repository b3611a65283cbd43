#ifndef ESPALIER_IO_ATOMIC_DIRECTORY_H_
#define ESPALIER_IO_ATOMIC_DIRECTORY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace espalier {

// A folder that appears under its name with all of its files, or not at all:
// adapters and checkpoints. Its files are written to path(), a hidden folder
// beside it; Commit flushes every one of them and renames the folder.
class AtomicDirectory {
 public:
  enum class Existing {
    kRefuse,   // ALREADY_EXISTS when the name is taken, by a symbolic link
               // too, but for a folder that is empty
    kReplace,  // changes places with the old folder, which is then removed;
               // no file of the old one stays behind
  };

  // Makes missing parent folders too. INVALID_ARGUMENT on an empty path.
  // Removes what runs for the same target that were killed left beside it.
  static absl::StatusOr<AtomicDirectory> Create(
      const std::string& target, Existing existing = Existing::kRefuse);
  // For work of hours: written to TARGET.partial, which outlives a failure or a
  // kill. With `resume`, what an earlier run left there is taken up, if there
  // is anything; without, ALREADY_EXISTS. The folder is locked: ABORTED while
  // another process writes it.
  static absl::StatusOr<AtomicDirectory> CreatePartial(
      const std::string& target, bool resume);
  // Without Commit, removes what was written, but for CreatePartial.
  ~AtomicDirectory();
  AtomicDirectory(AtomicDirectory&& other) noexcept;
  AtomicDirectory& operator=(AtomicDirectory&&) = delete;

  // Where to write.
  const std::string& path() const { return temporary_; }
  const std::string& target() const { return target_; }
  // Folders of killed runs that Create removed.
  const std::vector<std::string>& removed() const { return removed_; }
  // path()/name
  std::string Path(const std::string& name) const;

  absl::Status Commit();

 private:
  AtomicDirectory(std::string target, std::string temporary, Existing existing);

  void RemoveAbandoned();

  std::string target_;
  std::string temporary_;  // empty after Commit
  Existing existing_;
  bool keep_ = false;  // of CreatePartial: without Commit too
  // The open folder. Whoever writes it holds its lock, so one that can be had
  // was left by a killed process.
  int lock_ = -1;
  std::vector<std::string> removed_;
};

}  // namespace espalier

#endif  // ESPALIER_IO_ATOMIC_DIRECTORY_H_
