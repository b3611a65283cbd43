#ifndef ESPALIER_TESTS_CHECKPOINT_SPARSE_CHECKPOINT_H_
#define ESPALIER_TESTS_CHECKPOINT_SPARSE_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace espalier::test {

// A dense model of 3 layers, tied: every family has something more.
inline constexpr char kTinyLlama[] = R"({"model_type":"llama","vocab_size":24,
    "hidden_size":24,"num_hidden_layers":3,"num_attention_heads":4,
    "num_key_value_heads":2,"head_dim":8,"intermediate_size":40,
    "tie_word_embeddings":true})";

struct SparseCheckpoint {
  int64_t num_tensors = 0;
  int64_t num_files = 0;
  int64_t total_bytes = 0;   // of the tensors
  int64_t header_bytes = 0;  // of all files
};

// Writes a folder that has config.json, index and shard headers of a whole
// checkpoint of that config, every tensor that its family's table implies, in
// the packed form where the config has one; the data are holes of the files.
// One shard a layer, one for the rest in front, one for the rest behind, one
// for a vision tower. The experts of a layer lie in another order than their
// numbers, the tensors of one expert side by side. UNAVAILABLE where the file
// system has no holes or no room for such lengths.
absl::StatusOr<SparseCheckpoint> WriteSparseCheckpoint(
    absl::string_view config_json, const std::string& dir);

// Peak resident bytes of a process that does `work`, -1 where it returns false.
int64_t PeakBytes(const std::function<bool()>& work);

}  // namespace espalier::test

#endif  // ESPALIER_TESTS_CHECKPOINT_SPARSE_CHECKPOINT_H_
