#ifndef ESPALIER_IO_CONVERT_H_
#define ESPALIER_IO_CONVERT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/folder.h"

namespace espalier {

enum class ConvertTarget : uint8_t {
  kKeep,  // every tensor as it is stored
  kF32,
  kBF16,
  kF16,
  kFp8,    // DeepSeek's blocks: F8_E4M3 and weight_scale_inv
  kInt4,   // compressed-tensors pack-quantized, symmetric
  kMxfp4,  // compressed-tensors mxfp4-pack-quantized; gpt_oss: its own form
};

// Of routed experts: one tensor for each, or all in one (io/internal/
// weight_view.h has the names by model_type).
enum class ExpertTarget : uint8_t { kKeep, kStacked, kSeparate };

struct ConvertOptions {
  ConvertTarget to = ConvertTarget::kKeep;
  ExpertTarget experts = ExpertTarget::kKeep;
  int64_t int4_group = 32;  // 32, 64 or 128
  // Names of weights to pack, "*" standing for any text. Empty: the linear
  // projections (*_proj.weight, *.w1.weight, *.w2.weight, *.w3.weight) and
  // gpt_oss's experts. A pattern that names nothing is an error.
  std::vector<std::string> only;
  int64_t max_shard_bytes = int64_t{5'000'000'000};
  bool resume = false;
  // Plans all of it, writes nothing and does not look at the disk's space.
  bool dry_run = false;
  // Converts a folder whose tensors are not those of its config.json too, or
  // whose config.json says too little; what differs is in the report's notes.
  bool allow_mismatch = false;
  // Called after every piece with the bytes written and to be written.
  std::function<void(int64_t done, int64_t total)> progress;
};

struct ConvertReport {
  struct Shard {
    std::string file;
    int64_t num_tensors = 0;
    int64_t data_bytes = 0;
  };
  int64_t num_copied = 0;  // byte for byte
  int64_t num_cast = 0;    // to another dtype
  int64_t num_packed = 0;
  int64_t num_decoded = 0;  // packed before, dense now
  int64_t total_bytes = 0;  // of the tensors written
  int64_t resumed_bytes = 0;
  int64_t num_shards = 0;
  std::vector<Shard> shards;       // of a dry run
  std::vector<std::string> notes;  // for a person to read
};

// Writes `source` (a checkpoint folder or a .gguf file) as the folder `output`,
// in pieces: memory stays below 256 MB for half a million tensors, of whatever
// size (about 200 bytes of each are held). Weights that are packed and not to
// be packed again are decoded to bf16, or to the dtype asked for; floats are
// rounded to nearest even. config.json says what is written:
// quantization_config is replaced or removed, also inside text_config. All
// other files but weights are copied. Resuming gives the same bytes as a run
// without a kill. Fails as CheckpointWriter and WeightReader do; DATA_LOSS,
// naming the first tensor, for a folder whose tensors are not those that its
// config.json implies (a family without a table is a note); OUT_OF_RANGE for
// options that do not suit; INVALID_ARGUMENT where one of the folders lies in
// the other, and, naming tensor and place, on NaN
// or infinity in a weight to be packed and on values that the dtype cannot
// hold.
absl::StatusOr<ConvertReport> ConvertCheckpoint(const std::string& source,
                                                const std::string& output,
                                                const ConvertOptions& options);
// From a folder that need not be local: its bytes are read once, by pieces.
absl::StatusOr<ConvertReport> ConvertCheckpoint(
    std::shared_ptr<const Folder> source, const std::string& output,
    const ConvertOptions& options);

// "keep", "f32", "bf16", "f16", "fp8", "int4", "mxfp4".
absl::StatusOr<ConvertTarget> ParseConvertTarget(absl::string_view text);
// "keep", "stacked", "separate".
absl::StatusOr<ExpertTarget> ParseExpertTarget(absl::string_view text);

}  // namespace espalier

#endif  // ESPALIER_IO_CONVERT_H_
