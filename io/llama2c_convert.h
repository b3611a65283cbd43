#ifndef ESPALIER_IO_LLAMA2C_CONVERT_H_
#define ESPALIER_IO_LLAMA2C_CONVERT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace espalier {

// The head of a llama2.c checkpoint (karpathy/llama2.c, export.py, version 0):
// seven little-endian int32.
struct Llama2cConfig {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t vocab_size = 0;  // negative in the file when the head is not tied
  int64_t max_position_embeddings = 0;
  bool tie_word_embeddings = true;

  int64_t head_dim() const { return hidden_size / num_attention_heads; }
};

// Reads the head and holds it against the length of the whole file. Fails
// INVALID_ARGUMENT for sizes that are not positive or do not divide, DATA_LOSS
// for another length than they ask for.
absl::StatusOr<Llama2cConfig> ParseLlama2cConfig(
    absl::Span<const uint8_t> file);

// A llama2.c tokenizer.bin as the text of a tokenizer.json: byte-fallback BPE,
// merges in the order of the scores. `where` goes in front of messages.
absl::StatusOr<std::string> ConvertLlama2cTokenizer(
    absl::Span<const uint8_t> file, int64_t vocab_size,
    const std::string& where);

// Writes the folder that Hugging Face's Llama has for the model: config.json,
// generation_config.json, model.safetensors (f32), tokenizer.json and
// tokenizer_config.json. q_proj and k_proj rows go from interleaved rotary
// pairs to split halves. The folder appears whole; it must not be there yet,
// or be empty. Both files are distrusted.
absl::Status ConvertLlama2c(const std::string& model_path,
                            const std::string& tokenizer_path,
                            const std::string& output_dir);

}  // namespace espalier

#endif  // ESPALIER_IO_LLAMA2C_CONVERT_H_
