#ifndef ESPALIER_IO_INTERNAL_WEIGHT_SOURCE_H_
#define ESPALIER_IO_INTERNAL_WEIGHT_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/checkpoint_writer.h"
#include "espalier/io/folder.h"
#include "espalier/io/json.h"
#include "espalier/io/tensor_catalog.h"
#include "espalier/io/weight_reader.h"

namespace espalier::internal {

struct SourceWeight {
  absl::string_view name;      // points into the source
  std::vector<int64_t> shape;  // in elements
  // The dtype it keeps when none is asked for: its own, or bf16 where it is
  // packed.
  SafetensorsDType dtype = SafetensorsDType::kBF16;
  WeightFormat format = WeightFormat::kDense;
  int64_t group = 0;
  bool is_float = true;  // false: only its bytes can be had
  // Whether the stored tensors mean something outside their file (GGUF: no).
  bool copyable = true;
};

// A checkpoint as rows of f32, whatever it is stored in. Of a weight no more
// stays in memory than its name and its place. A weight of one dim has rows of
// one element.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // A folder with safetensors, or a .gguf file.
  static absl::StatusOr<std::unique_ptr<WeightSource>> Open(
      const std::string& path);
  static absl::StatusOr<std::unique_ptr<WeightSource>> Open(
      std::shared_ptr<const Folder> folder);

  // The weights' names, in the order in which they are converted.
  const std::vector<absl::string_view>& names() const { return names_; }
  // Found again for each call: a large model has half a million of them.
  virtual absl::StatusOr<SourceWeight> Weight(size_t weight) const = 0;
  // Changes when the source does.
  const std::string& fingerprint() const { return fingerprint_; }
  // The whole config.json; an empty object where there is none.
  const JsonValue& config() const { return config_; }
  // Other files of the checkpoint, by name, in catalog()->folder().
  const std::vector<std::string>& files() const { return files_; }
  // The stored tensors; null of a .gguf file.
  virtual const TensorCatalog* catalog() const { return nullptr; }
  // For a person to read.
  const std::vector<std::string>& notes() const { return notes_; }

  // Rows [start, start + count).
  virtual absl::Status ReadRows(size_t weight, int64_t start, int64_t count,
                                absl::Span<float> out) const = 0;
  // The tensors that hold a copyable weight as it is stored, codes first.
  virtual absl::StatusOr<TensorGroup> StoredOf(size_t weight) const = 0;
  // Bytes from `offset` of a stored tensor.
  virtual absl::Status ReadStored(const std::string& tensor, int64_t offset,
                                  absl::Span<uint8_t> out) const = 0;

 protected:
  std::vector<absl::string_view> names_;
  std::string fingerprint_;
  JsonValue config_ = JsonValue::Object{};
  std::vector<std::string> files_;
  std::vector<std::string> notes_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_WEIGHT_SOURCE_H_
