#ifndef ESPALIER_IO_SHARD_H_
#define ESPALIER_IO_SHARD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "espalier/io/folder.h"
#include "espalier/io/json.h"

namespace espalier {

// Sizes of the axes that weights are cut on. Experts are cut by ep, and each
// of them by etp; everything else by tp; layers by pp.
inline constexpr int kMaxMeshAxis = 65'536;
struct ShardMesh {
  int tp = 1;
  int ep = 1;
  int pp = 1;
  int etp = 1;
};

struct ShardOptions {
  ShardMesh mesh;
  int64_t max_shard_bytes = int64_t{5'000'000'000};
  // Takes up what an earlier run with the same source and settings left in
  // OUT.partial.
  bool resume = false;
  // Plans all of it and writes nothing; disk space is not looked at. unshard
  // looks for every piece.
  bool dry_run = false;
  // After each finished file; an error ends the run, which can be resumed.
  std::function<absl::Status(int64_t done_bytes, int64_t total_bytes)> on_file;
};

struct ShardReport {
  std::string out;
  int64_t num_files = 0;     // of weights, written or taken up
  int64_t num_taken_up = 0;  // of an earlier run
  int64_t num_tensors = 0;
  int64_t num_pieces = 0;
  int64_t total_bytes = 0;            // of the tensors
  std::vector<std::string> left_out;  // weights that the index does not name
};

// Writes the folder OUT (docs/formats/sharded.md): each tensor once for each
// piece that the mesh's ranks read, under its own name. Nothing is decoded; 20
// MB of buffers and about 150 bytes a tensor are in memory, whatever the
// model's size. The folder must pass VerifyCheckpoint's checks of headers and
// config.
// Fails before it writes: OUT_OF_RANGE where the mesh does not suit the model,
// naming a tensor; UNIMPLEMENTED for a family without a table; DATA_LOSS for a
// folder that does not verify; ALREADY_EXISTS when OUT holds something or
// OUT.partial is there and not to be resumed; INVALID_ARGUMENT when one of the
// folders lies in the other; FAILED_PRECONDITION when that is
// of another source or other settings; RESOURCE_EXHAUSTED, with the figures,
// when disk space is short.
absl::StatusOr<ShardReport> ShardCheckpoint(const std::string& dir,
                                            const std::string& out,
                                            const ShardOptions& options);
// Of a folder that need not be local; with many groups of ranks, its bytes are
// gone through once for each.
absl::StatusOr<ShardReport> ShardCheckpoint(
    const std::shared_ptr<const Folder>& folder, const std::string& out,
    const ShardOptions& options);

// Puts such a folder together again: every file of the original, byte for
// byte. Of the options, mesh and max_shard_bytes are not used.
absl::StatusOr<ShardReport> UnshardCheckpoint(const std::string& dir,
                                              const std::string& out,
                                              const ShardOptions& options);

JsonValue ToJson(const ShardReport& report);

}  // namespace espalier

#endif  // ESPALIER_IO_SHARD_H_
