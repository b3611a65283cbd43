#ifndef ESPALIER_MODEL_LOAD_H_
#define ESPALIER_MODEL_LOAD_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "espalier/io/checkpoint_reader.h"
#include "espalier/model/causal_lm.h"
#include "espalier/runtime/device.h"

namespace espalier {

// What loading did with every tensor of the checkpoint.
struct LoadReport {
  int64_t num_loaded = 0;
  int64_t mapped_bytes = 0;     // used in place, as file pages
  int64_t converted_bytes = 0;  // copies made because the dtype differed
  int64_t num_tied = 0;         // heads in the file that are the embedding
  int64_t num_frequencies = 0;  // rotary inv_freq, which config.json decides
};

// Gives every parameter of the model, all frozen, its tensor of the checkpoint.
// Tensors of dtype `dtype` are used in place, and so are the bf16 weights of
// linear layers under f32; others are converted. Strict both ways: fails on a
// missing tensor, another shape, and on tensors that no parameter takes, but
// for the rotary frequencies of older savers. A tied head may be stored under
// either of its names.
absl::StatusOr<LoadReport> LoadWeights(CausalLm& model,
                                       CheckpointReader& checkpoint,
                                       Device& device, DType dtype);

// One line for people.
std::string ToString(const LoadReport& report);

}  // namespace espalier

#endif  // ESPALIER_MODEL_LOAD_H_
