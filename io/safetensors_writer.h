#ifndef ESPALIER_IO_SAFETENSORS_WRITER_H_
#define ESPALIER_IO_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/atomic_file.h"
#include "espalier/io/safetensors_format.h"
#include "espalier/runtime/tensor.h"

namespace espalier {

// What a file will hold, known before its data.
struct TensorSpec {
  std::string name;
  SafetensorsDType dtype = SafetensorsDType::kF32;
  std::vector<int64_t> shape;
};

// Writes a safetensors file piece by piece, in any order of the tensors; no
// more than one piece is in memory. The bytes depend on the names, shapes,
// dtypes, metadata and data alone (docs/formats/safetensors.md). The file
// appears at Finish, whole. Thread-compatible.
class SafetensorsWriter {
 public:
  // Takes the disk space of the whole file at once. Fails before anything is
  // written: INVALID_ARGUMENT for what a reader would refuse (a name twice,
  // empty or not UTF-8, "__metadata__" as a name, rows that do not fill whole
  // bytes, overflow, a header above 100 MB); RESOURCE_EXHAUSTED when disk
  // space is short.
  static absl::StatusOr<SafetensorsWriter> Create(
      const std::string& path, const std::vector<TensorSpec>& tensors,
      const std::map<std::string, std::string>& metadata = {});

  // In the order of the data: dtype rank descending, then name.
  const std::vector<SafetensorsEntry>& entries() const {
    return header_.entries;
  }
  // Where the data begin: 8 + the length of the JSON.
  int64_t data_start() const { return data_start_; }

  // The next bytes of a tensor.
  absl::Status Append(absl::string_view name, absl::Span<const uint8_t> bytes);
  // The whole tensor, of the promised shape and dtype, from any device.
  absl::Status Write(absl::string_view name, const Tensor& tensor);

  // Fails when bytes of a tensor are missing, naming it.
  absl::Status Finish();

 private:
  SafetensorsWriter(AtomicFile file, SafetensorsHeader header,
                    int64_t data_start);

  AtomicFile file_;
  SafetensorsHeader header_;
  int64_t data_start_;
  std::vector<int64_t> written_;  // bytes, one for each entry
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// Writes all of them in one call.
absl::Status WriteSafetensors(
    const std::string& path, const std::vector<NamedTensor>& tensors,
    const std::map<std::string, std::string>& metadata = {});

}  // namespace espalier

#endif  // ESPALIER_IO_SAFETENSORS_WRITER_H_
