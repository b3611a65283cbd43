#ifndef ESPALIER_IO_MANIFEST_H_
#define ESPALIER_IO_MANIFEST_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "espalier/io/problem_list.h"
#include "espalier/io/tensor_catalog.h"

namespace espalier {

inline constexpr char kManifestName[] = "espalier-manifest.json";

// Sizes and content hashes of the files of a checkpoint folder
// (docs/formats/manifest.md).
struct Manifest {
  struct File {
    std::string name;
    int64_t num_bytes = 0;
    std::string header_hash;  // of length field and JSON; "" for other files
    std::vector<std::string> block_hashes;
  };
  int64_t block_bytes = int64_t{64} << 20;
  std::vector<File> files;  // names ascending

  // Over names, sizes and header hashes: tells bases apart without reading
  // their data.
  std::string HeaderFingerprint() const;
};

// Called with the bytes read so far and in all.
using ReadProgress = std::function<void(int64_t done, int64_t total)>;

// Reads every file once: the weights, and the other files of the folder but
// hidden ones and the manifest. Keeps 4 MiB in memory.
absl::StatusOr<Manifest> MakeManifest(const TensorCatalog& catalog,
                                      const ReadProgress& progress = {});

// Sizes and header hashes against the folder; with `full` every byte. Problems
// by kind: manifest_missing_file, manifest_extra_file, manifest_size,
// manifest_header, manifest_content (which names the first tensor of the
// block that differs).
absl::Status CheckManifest(const Manifest& manifest,
                           const TensorCatalog& catalog, bool full,
                           ProblemList* problems,
                           const ReadProgress& progress = {});

// Fails: NOT_FOUND, INVALID_ARGUMENT naming the key.
absl::StatusOr<Manifest> ReadManifest(const std::string& path);
absl::StatusOr<Manifest> ReadManifest(const Folder& folder);
absl::Status WriteManifest(const Manifest& manifest, const std::string& path);

}  // namespace espalier

#endif  // ESPALIER_IO_MANIFEST_H_
