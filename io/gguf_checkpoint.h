#ifndef ESPALIER_IO_GGUF_CHECKPOINT_H_
#define ESPALIER_IO_GGUF_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/gguf_file.h"
#include "espalier/io/json.h"

namespace espalier {

// A weight of a GGUF file under its Hugging Face name.
struct GgufWeight {
  std::string name;
  std::vector<int64_t> shape;
  uint32_t tensor = 0;       // of file().tensors()
  int64_t first_row = 0;     // an expert begins inside a stacked tensor
  int64_t rotary_heads = 0;  // q and k of the llama architecture: undo the
                             // row order that llama.cpp's converter makes
};

// A GGUF file of the architectures llama (also Mixtral), qwen2, qwen3,
// qwen2moe and qwen3moe as the checkpoint it was made from. Names, row order
// and keys as ggml-org/llama.cpp convert_hf_to_gguf.py and gguf-py/gguf/
// constants.py have them.
class GgufCheckpoint {
 public:
  // Fails UNIMPLEMENTED for other architectures, tensors and kinds of rope
  // scaling, by name; INVALID_ARGUMENT for keys that are missing or do not fit
  // the tensors.
  static absl::StatusOr<GgufCheckpoint> Open(const std::string& path);

  const GgufFile& file() const { return file_; }
  // In the order of the file; experts one by one.
  const std::vector<GgufWeight>& weights() const { return weights_; }
  // config.json without torch_dtype.
  const JsonValue& config() const { return config_; }
  // What the file says of the tokenizer, key and text, for a person to read:
  // model, pre, number of tokens and merges, special ids, chat template.
  const std::vector<std::pair<std::string, std::string>>& tokenizer() const {
    return tokenizer_;
  }

  // Rows [start, start + count) of a weight as f32; a weight of one dim has
  // rows of one element.
  absl::Status DecodeRows(const GgufWeight& weight, int64_t start,
                          int64_t count, absl::Span<float> out) const;

 private:
  explicit GgufCheckpoint(GgufFile file) : file_(std::move(file)) {}
  absl::Status ReadConfig();
  absl::Status ReadRope(JsonValue& config);
  absl::Status ReadRopeFactors(JsonValue& config);
  absl::Status NameTensors();
  absl::Status NameLayerTensor(uint32_t index, absl::string_view layer,
                               absl::string_view part);
  absl::Status Need(absl::string_view key, int64_t* value) const;
  void ReadTokenizer();

  GgufFile file_;
  std::string arch_;
  bool mixtral_ = false;
  int64_t num_layers_ = 0;
  int64_t num_heads_ = 0;
  int64_t num_key_value_heads_ = 0;
  int64_t head_dim_ = 0;
  int64_t num_experts_ = 0;
  std::vector<GgufWeight> weights_;
  JsonValue config_;
  std::vector<std::pair<std::string, std::string>> tokenizer_;
};

}  // namespace espalier

#endif  // ESPALIER_IO_GGUF_CHECKPOINT_H_
