#ifndef ESPALIER_IO_INTERNAL_SHARD_LAYOUT_H_
#define ESPALIER_IO_INTERNAL_SHARD_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "espalier/io/folder.h"
#include "espalier/io/internal/shard_hash.h"
#include "espalier/io/internal/tensor_cut.h"
#include "espalier/io/shard.h"

namespace espalier::internal {

inline constexpr char kShardsName[] = "espalier-shards.json";
inline constexpr char kOriginalDir[] = "espalier-original";
inline constexpr char kIndexName[] = "model.safetensors.index.json";

// espalier-shards.json (docs/formats/sharded.md).
struct ShardLayout {
  struct Source {  // a weight file of the original folder
    std::string name;
    int64_t num_bytes = 0;
    int64_t header_bytes = 0;
    std::string header_hash;
  };
  struct File {  // a weight file of this folder
    std::string name;
    PieceGroup group;
    int64_t num_tensors = 0;
    int64_t data_bytes = 0;
    ShardHashes hashes;  // empty as long as the file is not written
  };
  struct Copied {  // another file of the original folder
    std::string name;
    int64_t num_bytes = 0;
    std::string hash;
  };

  ShardMesh mesh;
  int64_t max_shard_bytes = 0;
  std::string index_hash;  // "": DIR has no index
  std::vector<Source> sources;
  std::vector<File> files;
  std::vector<Copied> copied;
  std::vector<std::string> left_out;
};

absl::StatusOr<std::string> WriteLayout(const ShardLayout& layout);
// Fails: NOT_FOUND, INVALID_ARGUMENT naming the key. Whether the folder's files
// are as it says is not looked at.
absl::StatusOr<ShardLayout> ReadLayout(const std::string& dir);
absl::StatusOr<ShardLayout> ReadLayout(const Folder& folder);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_SHARD_LAYOUT_H_
