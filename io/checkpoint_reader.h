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
#include "espalier/io/tensor_catalog.h"
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
  // naming tensor and file, NOT_FOUND with neither a single file nor an index,
  // DATA_LOSS otherwise: an index entry whose file is missing, does not hold
  // the tensor or is not a bare file name; a tensor in two shards; a broken
  // shard; both a single file and an index.
  static absl::StatusOr<CheckpointReader> Open(const std::string& dir,
                                               ReadMode mode = ReadMode::kMap);
  static absl::StatusOr<CheckpointReader> Open(
      std::shared_ptr<const Folder> folder, ReadMode mode = ReadMode::kMap);

  const std::string& dir() const { return catalog_.dir(); }
  // Tensors in the order of the files.
  const TensorCatalog& catalog() const { return catalog_; }
  int64_t num_tensors() const {
    return static_cast<int64_t>(catalog_.tensors().size());
  }
  // Ascending; they point into this reader.
  std::vector<absl::string_view> names() const;
  // A second name of a tensor, as savers of tied weights leave it in the
  // metadata ({"lm_head.weight": "model.embed_tokens.weight"}), stands for that
  // tensor in every call.
  bool Contains(absl::string_view name) const;
  // What the header says of a tensor, and its file; none when there is none.
  std::optional<SafetensorsEntry> Find(
      absl::string_view name, const SafetensorsFile** file = nullptr) const;
  // Sum over the tensors.
  int64_t total_bytes() const { return catalog_.total_bytes(); }

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

  // For a person to read, the first of each kind: unknown header fields,
  // tensors of shards that the index does not map, safetensors files of the
  // folder that it does not name.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  explicit CheckpointReader(TensorCatalog catalog);
  void AddAliases();
  const TensorCatalog::Tensor* FindTensor(absl::string_view name) const;
  absl::StatusOr<const TensorCatalog::Tensor*> Need(absl::string_view name);
  void Consume(const TensorCatalog::Tensor& tensor);
  size_t IndexOf(const TensorCatalog::Tensor& tensor) const {
    return static_cast<size_t>(&tensor - catalog_.tensors().data());
  }
  std::string NearestName(absl::string_view name) const;

  TensorCatalog catalog_;
  std::vector<uint32_t> by_name_;  // numbers of tensors, names ascending
  absl::flat_hash_map<std::string, std::string> aliases_;  // to stored names
  std::vector<bool> consumed_;
  int64_t num_consumed_ = 0;
  std::vector<std::string> missing_;
  std::vector<std::string> warnings_;
};

}  // namespace espalier

#endif  // ESPALIER_IO_CHECKPOINT_READER_H_
