#ifndef ESPALIER_MODEL_ROPE_CONFIG_H_
#define ESPALIER_MODEL_ROPE_CONFIG_H_

#include <cstdint>

#include "absl/status/statusor.h"

#include "espalier/io/json_object.h"
#include "espalier/ops/rope/rope.h"

namespace espalier {

// Rotary settings of a config.json in either spelling: "rope_theta" with
// "rope_scaling" ("type" or "rope_type"), or "rope_parameters" with both.
// Half-split layout over `rotary_dim` channels. Fails INVALID_ARGUMENT on a
// scaling type or key that is not known.
absl::StatusOr<RopeOptions> ParseRope(const JsonObject& json,
                                      int64_t rotary_dim);

}  // namespace espalier

#endif  // ESPALIER_MODEL_ROPE_CONFIG_H_
