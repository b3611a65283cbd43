#ifndef ESPALIER_IO_GGUF_FILE_H_
#define ESPALIER_IO_GGUF_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/internal/file.h"
#include "espalier/io/json.h"

namespace espalier {

// Element types of ggml that are read, with its numbers.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ40 = 2,
  kQ41 = 3,
  kQ80 = 8,
  kQ4K = 12,
  kQ6K = 14,
  kBF16 = 30,
};
absl::string_view ToString(GgmlType type);
int64_t BlockElements(GgmlType type);
int64_t BlockBytes(GgmlType type);

struct GgufTensor {
  std::string name;
  GgmlType type = GgmlType::kF32;
  std::vector<int64_t> shape;  // outermost first, as in safetensors
  int64_t begin = 0;           // position in the file
  int64_t num_bytes = 0;

  int64_t columns() const { return shape.back(); }
  int64_t rows() const;
};

// A value of the metadata. Arrays stay in the file: a token list is not worth
// its memory until somebody asks.
struct GgufValue {
  JsonValue scalar;  // null for arrays
  bool is_array = false;
  uint32_t element = 0;  // ggml's value type of the elements
  int64_t count = 0;
  int64_t begin = 0;  // position of the first element
};

// A GGUF file (ggml-org/ggml docs/gguf.md, versions 2 and 3, little endian),
// its head read and validated; no handle stays open. Every length of the file
// is distrusted. Reading is safe from several threads at once.
class GgufFile {
 public:
  // Fails, naming file and tensor or key: INVALID_ARGUMENT for another magic,
  // duplicate names, 0 or more than 4 dims, sizes that overflow or do not fill
  // blocks, tensors that overlap or are not aligned, strings above 16 MiB, more
  // than 65,536 keys or 1,000,000 tensors; DATA_LOSS where the file ends early;
  // UNIMPLEMENTED for other versions, types and nested arrays.
  static absl::StatusOr<GgufFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t file_bytes() const { return identity_.size; }
  const std::string& fingerprint() const { return fingerprint_; }
  // In the order of the file.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const std::map<std::string, GgufValue>& metadata() const { return metadata_; }
  const GgufTensor* Find(absl::string_view name) const;

  // Scalars; null when the key is absent or of another kind.
  const int64_t* FindInt(absl::string_view key) const;
  const std::string* FindString(absl::string_view key) const;
  // Floats and integers.
  const double* FindNumber(absl::string_view key, double* storage) const;

  // Rows [start, start + count) of all slices as f32; a tensor of one dim is
  // one row.
  absl::Status DecodeRows(const GgufTensor& tensor, int64_t start,
                          int64_t count, absl::Span<float> out) const;

 private:
  std::string path_;
  internal::FileIdentity identity_;
  std::string fingerprint_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, GgufValue> metadata_;
};

}  // namespace espalier

#endif  // ESPALIER_IO_GGUF_FILE_H_
