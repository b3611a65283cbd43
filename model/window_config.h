#ifndef ESPALIER_MODEL_WINDOW_CONFIG_H_
#define ESPALIER_MODEL_WINDOW_CONFIG_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "espalier/io/json_object.h"

namespace espalier {

// The attention window of each layer, in tokens, 0 for none, as
// "use_sliding_window", "sliding_window", "max_window_layers" and "layer_types"
// of a config.json say: with use_sliding_window the layers that layer_types
// calls "sliding_attention", or without it those from max_window_layers on,
// have sliding_window; all others see their whole document. Fails
// INVALID_ARGUMENT naming file and key.
absl::StatusOr<std::vector<int64_t>> ParseWindows(const JsonObject& json,
                                                  int64_t num_layers);

}  // namespace espalier

#endif  // ESPALIER_MODEL_WINDOW_CONFIG_H_
