#ifndef ESPALIER_LORA_ATTACH_H_
#define ESPALIER_LORA_ATTACH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "espalier/model/causal_lm.h"
#include "espalier/runtime/device.h"

namespace espalier::lora {

struct Options {
  int64_t lora_rank = 8;
  double lora_alpha = 16;
  // A module is adapted when its name equals an entry or ends with "." and the
  // entry (PEFT's rule). "all-linear": every linear layer but the output head.
  std::vector<std::string> target_modules = {"all-linear"};
  uint64_t seed = 0;
};

// One line of the table printed before training.
struct TargetRow {
  std::string target;  // the last part of the module names, such as "q_proj"
  int64_t num_modules = 0;
  int64_t lora_rank = 0;
  int64_t num_parameters = 0;
};

// Attaches an adapter to every target. Fails OUT_OF_RANGE when an entry matches
// no module (naming the candidates), and on a rank below 1 or above all sides
// of all targets' weights.
absl::StatusOr<std::vector<TargetRow>> Attach(CausalLm& model,
                                              const Options& options,
                                              Device& device);

// "target  modules  rank  parameters", one line a row and a total.
std::string ToString(const std::vector<TargetRow>& rows);

// The trainable parameters of the adapters, in declaration order.
std::vector<Parameter*> AdapterParameters(CausalLm& model);

}  // namespace espalier::lora

#endif  // ESPALIER_LORA_ATTACH_H_
