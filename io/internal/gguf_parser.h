#ifndef ESPALIER_IO_INTERNAL_GGUF_PARSER_H_
#define ESPALIER_IO_INTERNAL_GGUF_PARSER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

#include "espalier/io/gguf_file.h"
#include "espalier/io/internal/file.h"

namespace espalier::internal {

// Reads the head of a GGUF file front to back through a small buffer: nothing
// is allocated by a number that the file claims.
class GgufParser {
 public:
  explicit GgufParser(const ReadableFile& file) : file_(file) {}

  absl::Status Parse(std::map<std::string, GgufValue>& metadata,
                     std::vector<GgufTensor>& tensors);

 private:
  absl::Status Bytes(absl::Span<uint8_t> out);
  absl::Status Skip(int64_t count);
  template <typename T>
  absl::Status Number(T* value);
  absl::Status String(std::string* text);
  absl::Status Scalar(uint32_t type, JsonValue* value);
  absl::Status Array(GgufValue& value);
  absl::Status Metadata(uint64_t count,
                        std::map<std::string, GgufValue>& metadata);
  absl::Status Tensor(GgufTensor& tensor);
  absl::Status Place(int64_t alignment, std::vector<GgufTensor>& tensors);

  const ReadableFile& file_;
  std::vector<uint8_t> buffer_;
  int64_t buffer_begin_ = 0;
  int64_t at_ = 0;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_GGUF_PARSER_H_
