#ifndef ESPALIER_IO_INTERNAL_SHARD_HASH_H_
#define ESPALIER_IO_INTERNAL_SHARD_HASH_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "espalier/io/internal/file.h"
#include "espalier/io/safetensors_reader.h"

namespace espalier::internal {

// The content of a safetensors file in two hashes (docs/formats/sharded.md).
// That of the data is made of one hash a tensor, so that tensors may be copied,
// and so hashed, in any order.
struct ShardHashes {
  std::string header;  // XXH3-64 of the first 8 + N bytes
  std::string data;    // HashOfHashes of the tensors, in the order of the data

  friend bool operator==(const ShardHashes&, const ShardHashes&) = default;
};

// XXH3-64 of the numbers as little-endian bytes.
std::string HashOfHashes(absl::Span<const uint64_t> hashes);

// Reads the whole file.
absl::StatusOr<ShardHashes> HashShardFile(const std::string& path);
// The same of an open file and its bytes.
absl::StatusOr<ShardHashes> HashShardFile(const SafetensorsFile& file,
                                          const ReadableFile& bytes);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_SHARD_HASH_H_
