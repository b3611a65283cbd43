#ifndef ESPALIER_IO_CHECKPOINT_WRITER_H_
#define ESPALIER_IO_CHECKPOINT_WRITER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/content_hash.h"
#include "espalier/io/safetensors_writer.h"

namespace espalier {

// Tensors that are written together, so that they stay in one shard: the codes
// and scales of a packed weight, for example.
using TensorGroup = std::vector<TensorSpec>;

// Groups that are made when they are asked for, so that not all of a large
// model's are in memory.
struct TensorGroups {
  int64_t count = 0;
  // The same for the same number at every call; 0 <= index < count.
  std::function<absl::StatusOr<TensorGroup>(int64_t index)> at;
};

namespace internal {
class FolderJob;
class ReadableFile;
class ShardPlan;
}  // namespace internal

struct CheckpointWriterOptions {
  int64_t max_shard_bytes = int64_t{5'000'000'000};
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  // Takes up what an earlier run with the same plan left in DIR.partial.
  bool resume = false;
  // What the data depends on beside names and shapes (sources, settings):
  // resuming with another one is refused.
  std::string fingerprint;
};

// Writes a Hugging Face folder piece by piece: shards filled in the order of
// the groups, the index with the true total_size, and other files. Works in
// DIR.partial; every finished shard survives a kill (one that was damaged since
// is written again, as its hash tells), and the folder appears under its name,
// whole, at Finish. One shard is open at a time. Thread-compatible.
class CheckpointWriter {
 public:
  // Plans all shards and fails before anything is written: RESOURCE_EXHAUSTED,
  // with the figures, when the disk is too full for what is still to write;
  // ALREADY_EXISTS when `dir` holds something, or an unfinished folder is there
  // and is not to be resumed; FAILED_PRECONDITION when that one is of another
  // plan; OUT_OF_RANGE for options; INVALID_ARGUMENT for what SafetensorsWriter
  // refuses, and for a name in two groups.
  static absl::StatusOr<CheckpointWriter> Create(
      const std::string& dir, std::vector<TensorGroup> groups,
      const CheckpointWriterOptions& options = {});
  // The same; about 20 bytes of each tensor, and the names of the shard that is
  // written, stay in memory.
  static absl::StatusOr<CheckpointWriter> CreateFrom(
      const std::string& dir, const TensorGroups& groups,
      const CheckpointWriterOptions& options = {});
  ~CheckpointWriter();
  CheckpointWriter(CheckpointWriter&&) noexcept;
  CheckpointWriter& operator=(CheckpointWriter&&) = delete;

  // File of each shard: model.safetensors when there is one shard,
  // model-00001-of-0000N.safetensors otherwise.
  int64_t num_shards() const { return static_cast<int64_t>(states_.size()); }
  int64_t num_finished_shards() const;
  // Sum over the tensors, and what of it an earlier run had written.
  int64_t total_bytes() const;
  int64_t resumed_bytes() const { return resumed_bytes_; }

  // Whether an earlier run has written the tensor: nothing is to be appended.
  bool IsWritten(absl::string_view name) const;
  // The next bytes of a tensor. The tensors of one shard may be filled in any
  // order, but a shard must be full before one of the next shard begins.
  absl::Status Append(absl::string_view name, absl::Span<const uint8_t> bytes);
  // Another file of the folder, whole, under a plain file name.
  absl::Status AddFile(const std::string& name, absl::string_view text);
  // A copy of a file, byte for byte, under its own name.
  absl::Status CopyFile(const std::string& path);
  absl::Status CopyFile(const internal::ReadableFile& file);

  // FAILED_PRECONDITION, naming a tensor, when bytes are missing.
  absl::Status Finish();

 private:
  struct ShardState {
    int64_t missing_bytes = 0;
    bool finished = false;
  };

  CheckpointWriter(internal::FolderJob job, internal::ShardPlan plan);
  int64_t TakeUpShards();
  absl::StatusOr<SafetensorsWriter> OpenShard(size_t shard) const;
  absl::Status CloseShard();
  absl::Status FinishShard(size_t shard, SafetensorsWriter writer);
  absl::Status WriteIndex();

  std::unique_ptr<internal::FolderJob> job_;
  std::unique_ptr<const internal::ShardPlan> plan_;
  std::map<std::string, std::string> metadata_;
  std::vector<ShardState> states_;  // one for each shard of the plan
  std::optional<SafetensorsWriter> open_;
  // Of the tensors of the open shard that have bytes.
  std::map<std::string, std::unique_ptr<ContentHasher>, std::less<>> hashers_;
  size_t open_shard_ = 0;
  int64_t resumed_bytes_ = 0;
};

}  // namespace espalier

#endif  // ESPALIER_IO_CHECKPOINT_WRITER_H_
