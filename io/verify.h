#ifndef ESPALIER_IO_VERIFY_H_
#define ESPALIER_IO_VERIFY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "espalier/io/json.h"
#include "espalier/io/manifest.h"
#include "espalier/io/problem_list.h"

namespace espalier {

struct VerifyOptions {
  // Reads every byte, and holds it against the manifest where there is one.
  bool full = false;
  // Empty: espalier-manifest.json of the folder, where it exists.
  std::string manifest;
  // Not empty: a manifest is made and written there if nothing is wrong.
  std::string write_manifest;
  ReadProgress progress;
};

struct VerifyReport {
  std::string dir;
  std::string family;  // "" not known
  int64_t num_files = 0;
  int64_t num_tensors = 0;
  int64_t total_bytes = 0;
  int64_t num_matched = 0;  // tensors that the family's table has
  std::string manifest;     // that was held against the folder; "" none
  bool read_all = false;    // every byte of the weights was read
  std::string written_manifest;
  // The espalier-shards.json of a folder that ShardCheckpoint wrote; "" of
  // another. Tensors and bytes are those of the original then.
  std::string sharded;
  // By kind: those of TensorCatalog and CheckManifest; wrong_total_size (of
  // the index; not looked at where files are wrong); bad_config; of config
  // against tensors missing_tensor, unexpected_tensor, wrong_shape,
  // wrong_dtype, two_forms (one weight dense and packed).
  ProblemList problems;
  // Of a sharded folder: bad_layout, bad_config, bad_original and bad_copy
  // (what unshard needs beside the pieces), bad_file, missing_piece,
  // unknown_piece, wrong_data (with `full`).
  // Nothing wrong, but worth knowing: also family (no table), beside_table,
  // absent_part (prediction layers, a vision tower), low_precision (stored
  // with fewer bits than the release keeps).
  ProblemList notes;

  bool ok() const { return problems.empty(); }
};

// A checkpoint folder, or one that ShardCheckpoint wrote.
// Fails only where the check itself cannot be made: no folder, no weights, a
// manifest that was named and cannot be read, or of a sharded folder, an
// input/output error.
absl::StatusOr<VerifyReport> VerifyCheckpoint(const std::string& dir,
                                              const VerifyOptions& options);
absl::StatusOr<VerifyReport> VerifyCheckpoint(
    std::shared_ptr<const Folder> folder, const VerifyOptions& options);

JsonValue ToJson(const VerifyReport& report);
std::string ToText(const VerifyReport& report);

}  // namespace espalier

#endif  // ESPALIER_IO_VERIFY_H_
