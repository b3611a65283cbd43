#include "espalier/io/internal/shard_plan.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "espalier/io/internal/text.h"

namespace espalier::internal {

namespace {

// A header entry takes at most this beside its name and numbers.
constexpr int64_t kHeaderSlack = 256;

absl::StatusOr<int64_t> BytesOf(const TensorSpec& spec) {
  int64_t bits = BitsOf(spec.dtype);
  for (const int64_t extent : spec.shape) {
    if (extent < 0 || __builtin_mul_overflow(bits, extent, &bits)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", Quote(spec.name), ": shape [",
          absl::StrJoin(spec.shape, ", "), "] is negative or too large"));
    }
  }
  return bits / 8 + (bits % 8 != 0 ? 1 : 0);
}

uint64_t Fnv1a(absl::string_view text, uint64_t seed) {
  for (const char c : text) {
    seed = (seed ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  return seed;
}

}  // namespace

uint64_t ShardPlan::HashOf(absl::string_view name) const {
  return absl::Hash<std::pair<uint64_t, absl::string_view>>()({seed_, name});
}

absl::Status ShardPlan::Cut(int64_t max_shard_bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (int64_t g = 0; g < groups_.count; ++g) {
    const absl::StatusOr<TensorGroup> group = groups_.at(g);
    if (!group.ok()) return group.status();
    int64_t group_bytes = 0;
    for (const TensorSpec& spec : *group) {
      const absl::StatusOr<int64_t> bytes = BytesOf(spec);
      if (!bytes.ok()) return bytes.status();
      if (__builtin_add_overflow(group_bytes, *bytes, &group_bytes) ||
          total_bytes_ > std::numeric_limits<int64_t>::max() - group_bytes) {
        return absl::InvalidArgumentError("the checkpoint grows too large");
      }
    }
    const int64_t count = static_cast<int64_t>(group->size());
    if (shards_.empty() ||
        (shards_.back().num_tensors > 0 &&
         (shards_.back().data_bytes > max_shard_bytes - group_bytes ||
          shards_.back().num_tensors > kMaxTensorsInShard - count))) {
      shards_.emplace_back().first_group = g;
    }
    Shard& shard = shards_.back();
    ++shard.num_groups;
    shard.num_tensors += count;
    shard.data_bytes += group_bytes;
    total_bytes_ += group_bytes;
    for (const TensorSpec& spec : *group) {
      shard_of_.emplace_back(HashOf(spec.name),
                             static_cast<uint32_t>(shards_.size() - 1));
      name_bytes_ += static_cast<int64_t>(spec.name.size());
      shard.header_bytes +=
          kHeaderSlack + static_cast<int64_t>(spec.name.size());
      hash = Fnv1a(absl::StrCat(spec.name, "\n", ToString(spec.dtype), " ",
                                absl::StrJoin(spec.shape, ","), "\n"),
                   hash);
    }
  }
  if (shards_.empty()) shards_.emplace_back();
  for (size_t i = 0; i < shards_.size(); ++i) {
    Shard& shard = shards_[i];
    shard.file = shards_.size() == 1
                     ? "model.safetensors"
                     : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1,
                                       shards_.size());
    hash = Fnv1a(absl::StrCat(shard.file, " ", shard.num_tensors, "\n"), hash);
  }
  fingerprint_ = absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
  std::sort(shard_of_.begin(), shard_of_.end());
  return absl::OkStatus();
}

// Whether two names have one hash; fails where they are the same name.
absl::StatusOr<bool> ShardPlan::HasCollision() {
  absl::flat_hash_set<uint64_t> equal;
  for (size_t i = 1; i < shard_of_.size(); ++i) {
    if (shard_of_[i].first == shard_of_[i - 1].first) {
      equal.insert(shard_of_[i].first);
    }
  }
  if (equal.empty()) return false;
  absl::flat_hash_set<std::string> names;
  for (int64_t g = 0; g < groups_.count; ++g) {
    const absl::StatusOr<TensorGroup> group = groups_.at(g);
    if (!group.ok()) return group.status();
    for (const TensorSpec& spec : *group) {
      if (!equal.contains(HashOf(spec.name))) continue;
      if (names.insert(spec.name).second) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Quote(spec.name), ": named twice"));
    }
  }
  return true;
}

absl::StatusOr<ShardPlan> ShardPlan::Make(const TensorGroups& groups,
                                          int64_t max_shard_bytes) {
  // Another seed where two of the names share a hash.
  for (uint64_t seed = 0;; ++seed) {
    ShardPlan plan(groups);
    plan.seed_ = seed;
    absl::Status status = plan.Cut(max_shard_bytes);
    if (!status.ok()) return status;
    const absl::StatusOr<bool> collision = plan.HasCollision();
    if (!collision.ok()) return collision.status();
    if (!*collision) return plan;
  }
}

absl::StatusOr<std::vector<TensorSpec>> ShardPlan::TensorsOf(
    const Shard& shard) const {
  std::vector<TensorSpec> tensors;
  tensors.reserve(static_cast<size_t>(shard.num_tensors));
  for (int64_t i = 0; i < shard.num_groups; ++i) {
    absl::StatusOr<TensorGroup> group = groups_.at(shard.first_group + i);
    if (!group.ok()) return group.status();
    std::move(group->begin(), group->end(), std::back_inserter(tensors));
  }
  return tensors;
}

int64_t ShardPlan::ShardOf(absl::string_view name) const {
  const uint64_t hash = HashOf(name);
  const auto found = std::lower_bound(shard_of_.begin(), shard_of_.end(),
                                      std::pair<uint64_t, uint32_t>(hash, 0));
  if (found == shard_of_.end() || found->first != hash) return -1;
  return found->second;
}

}  // namespace espalier::internal
