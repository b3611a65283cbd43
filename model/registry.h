#ifndef ESPALIER_MODEL_REGISTRY_H_
#define ESPALIER_MODEL_REGISTRY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "espalier/model/causal_lm.h"

namespace espalier {

// Builds, without weights, the model that `dir`/config.json describes. Fails,
// naming the file: NOT_FOUND without one, INVALID_ARGUMENT on a malformed one,
// on a model_type that no family has, on missing keys and on unknown keys that
// could change the maths.
absl::StatusOr<std::unique_ptr<CausalLm>> CreateModel(const std::string& dir);

}  // namespace espalier

#endif  // ESPALIER_MODEL_REGISTRY_H_
