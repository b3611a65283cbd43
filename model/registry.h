#ifndef ESPALIER_MODEL_REGISTRY_H_
#define ESPALIER_MODEL_REGISTRY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "espalier/io/json_object.h"
#include "espalier/model/causal_lm.h"

namespace espalier {

// The model_types that CreateModel builds.
std::vector<std::string> ModelFamilies();

// Builds, without weights, the model that a config.json describes. Fails
// INVALID_ARGUMENT, naming the file, on a model_type that no family has, on
// missing keys and on unknown keys that could change the maths.
absl::StatusOr<std::unique_ptr<CausalLm>> CreateModel(const JsonObject& json);
// Of `dir`/config.json: also NOT_FOUND without one, INVALID_ARGUMENT on a
// malformed one.
absl::StatusOr<std::unique_ptr<CausalLm>> CreateModel(const std::string& dir);

}  // namespace espalier

#endif  // ESPALIER_MODEL_REGISTRY_H_
