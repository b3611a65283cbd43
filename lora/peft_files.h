#ifndef ESPALIER_LORA_PEFT_FILES_H_
#define ESPALIER_LORA_PEFT_FILES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "espalier/lora/attach.h"
#include "espalier/model/causal_lm.h"

namespace espalier::lora {

struct SaveReport {
  int64_t num_tensors = 0;
  int64_t bytes = 0;
};

// Writes PEFT's files into the new folder `dir`, all or nothing:
// adapter_config.json (keys sorted) and adapter_model.safetensors with
// "base_model.model.<module>.lora_A.weight" [R, in] and lora_B [out, R], f32.
// Fails ALREADY_EXISTS when `dir` exists, FAILED_PRECONDITION without adapters.
absl::StatusOr<SaveReport> SaveAdapter(CausalLm& model, const Options& options,
                                       const std::string& base_model,
                                       const std::string& dir);

// What SaveAdapter would write, for a look at the disk before training: all
// tensors exactly, headers and configuration rounded up.
int64_t SavedBytes(CausalLm& model);

// Gives the attached adapters the values of such a folder. Strict both ways:
// fails on a missing, an unknown or a differently shaped tensor.
absl::Status LoadAdapterValues(CausalLm& model, const std::string& dir);

}  // namespace espalier::lora

#endif  // ESPALIER_LORA_PEFT_FILES_H_
