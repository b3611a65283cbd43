#ifndef ESPALIER_IO_CHECKPOINT_READER_H_
#define ESPALIER_IO_CHECKPOINT_READER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/safetensors_reader.h"
#include "espalier/runtime/device.h"
#include "espalier/runtime/shape.h"
#include "espalier/runtime/tensor.h"

namespace espalier {

// The tensors of a Hugging Face folder: model.safetensors, or the shards that
// model.safetensors.index.json names. It keeps account of what was taken, so
// that nothing is left out or filled in silently. No file stays open, and of
// the maps at most 64 are kept beside those that tensors point into.
// Thread-compatible.
class CheckpointReader {
 public:
  // Reads the header of every shard and holds the index against it. Fails,
  // naming tensor and file: an index entry whose file is missing, does not
  // hold the tensor or is not a bare file name; a tensor in two shards; a
  // broken shard; both a single file and an index; neither of them.
  static absl::StatusOr<CheckpointReader> Open(const std::string& dir,
                                               ReadMode mode = ReadMode::kMap);

  const std::string& dir() const { return dir_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  int64_t num_tensors() const { return static_cast<int64_t>(names_.size()); }
  // Ascending.
  const std::vector<std::string>& names() const { return names_; }
  // A second name of a tensor, as savers of tied weights leave it in the
  // metadata ({"lm_head.weight": "model.embed_tokens.weight"}), stands for that
  // tensor in every call.
  bool Contains(absl::string_view name) const;
  // What the header says of a tensor, and its file; null when there is none.
  const SafetensorsEntry* Find(absl::string_view name,
                               const SafetensorsFile** file = nullptr) const;
  // Sum over the tensors.
  int64_t total_bytes() const { return total_bytes_; }

  // The tensor, noted as consumed, in the form of SafetensorsFile::Load. A
  // tensor that is not there is noted as missing and is NOT_FOUND, with the
  // nearest name. With `shape`, another shape is INVALID_ARGUMENT: "NAME:
  // shape [128, 2048], expected [64, 2048] (FILE)".
  absl::StatusOr<Tensor> Take(Device& device, absl::string_view name);
  absl::StatusOr<Tensor> Take(Device& device, absl::string_view name,
                              const Shape& shape);
  // Rows of the first dim; the tensor counts as consumed.
  absl::StatusOr<Tensor> TakeRows(Device& device, absl::string_view name,
                                  int64_t start, int64_t count);
  // Notes a tensor as consumed without loading it (a tied copy, for example).
  // False when there is none.
  bool MarkConsumed(absl::string_view name);

  int64_t num_consumed() const { return num_consumed_; }
  // Names that nobody took, ascending.
  std::vector<std::string> Unused() const;
  // Names that were asked for and are not there, in the order of asking.
  const std::vector<std::string>& Missing() const { return missing_; }

  // For a person to read: safetensors files of the folder that the index does
  // not name, tensors of shards that it does not map, unknown header fields.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  struct Place {
    uint32_t file = 0;
    uint32_t entry = 0;
    bool consumed = false;
  };

  CheckpointReader();
  absl::Status OpenSingle(const std::string& path, ReadMode mode);
  absl::Status OpenSharded(const std::string& index_path, ReadMode mode);
  absl::Status AddFile(const std::string& path, ReadMode mode);
  absl::Status AddPlaces(uint32_t file_index);
  void AddAliases();
  void WarnOfOtherFiles();
  void Finish();
  const Place* FindPlace(absl::string_view name) const;
  absl::StatusOr<Place*> PlaceOf(absl::string_view name);
  std::string NearestName(absl::string_view name) const;

  std::string dir_;
  std::shared_ptr<internal::MapCache> maps_;
  std::vector<SafetensorsFile> files_;
  absl::flat_hash_map<std::string, Place> places_;
  absl::flat_hash_map<std::string, std::string> aliases_;  // to names_
  std::vector<std::string> names_;
  int64_t total_bytes_ = 0;
  int64_t num_consumed_ = 0;
  std::vector<std::string> missing_;
  std::vector<std::string> warnings_;
};

}  // namespace espalier

#endif  // ESPALIER_IO_CHECKPOINT_READER_H_
