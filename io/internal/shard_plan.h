#ifndef ESPALIER_IO_INTERNAL_SHARD_PLAN_H_
#define ESPALIER_IO_INTERNAL_SHARD_PLAN_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/checkpoint_writer.h"

namespace espalier::internal {

// The shards that a checkpoint is cut into, in the order of its groups. Of a
// tensor 16 bytes stay in memory; its name is asked for again when its shard is
// written. Immutable after Make; thread-safe where TensorGroups is.
class ShardPlan {
 public:
  struct Shard {
    // model.safetensors when there is one shard,
    // model-00001-of-0000N.safetensors otherwise.
    std::string file;
    int64_t first_group = 0;
    int64_t num_groups = 0;
    int64_t num_tensors = 0;
    int64_t data_bytes = 0;
    int64_t header_bytes = 0;  // at most
  };
  // A shard's names are in memory while it is written.
  static constexpr int64_t kMaxTensorsInShard = 50'000;

  // INVALID_ARGUMENT for a shape that cannot be and a name in two groups;
  // otherwise fails as `groups` does.
  static absl::StatusOr<ShardPlan> Make(const TensorGroups& groups,
                                        int64_t max_shard_bytes);

  const std::vector<Shard>& shards() const { return shards_; }
  int64_t total_bytes() const { return total_bytes_; }
  int64_t num_tensors() const { return static_cast<int64_t>(shard_of_.size()); }
  int64_t name_bytes() const { return name_bytes_; }  // of all tensors
  // Changes with any name, shape, dtype or file.
  const std::string& fingerprint() const { return fingerprint_; }

  absl::StatusOr<std::vector<TensorSpec>> TensorsOf(const Shard& shard) const;
  // Number of the shard that holds a tensor of this plan; of other names none
  // or any, -1 for none.
  int64_t ShardOf(absl::string_view name) const;

 private:
  explicit ShardPlan(TensorGroups groups) : groups_(std::move(groups)) {}
  uint64_t HashOf(absl::string_view name) const;
  absl::Status Cut(int64_t max_shard_bytes);
  absl::StatusOr<bool> HasCollision();

  TensorGroups groups_;
  std::vector<Shard> shards_;
  std::vector<std::pair<uint64_t, uint32_t>> shard_of_;  // by hash of the name
  uint64_t seed_ = 0;
  int64_t total_bytes_ = 0;
  int64_t name_bytes_ = 0;
  std::string fingerprint_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_SHARD_PLAN_H_
