#ifndef ESPALIER_IO_INTERNAL_WEIGHT_MAP_H_
#define ESPALIER_IO_INTERNAL_WEIGHT_MAP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace espalier::internal {

// The weight_map of a model.safetensors.index.json.
struct WeightMap {
  struct Item {
    std::string tensor;
    uint32_t file = 0;
  };
  std::vector<std::string> files;  // ascending
  std::vector<Item> items;         // tensor names ascending
};

inline constexpr int64_t kMaxIndexBytes = int64_t{64} << 20;

// Fails INVALID_ARGUMENT on anything but an object with a weight_map of
// strings, on a key given twice, and on a value that is not a bare file name.
// Other keys are skipped: total_size is often wrong and never trusted.
absl::StatusOr<WeightMap> ParseWeightMap(absl::string_view json);

// Calls visit(tensor, file) for each item in the order of the text, with the
// checks of ParseWeightMap but for tensors mapped twice. An error of visit ends
// it. Keeps nothing in memory.
absl::Status VisitWeightMap(
    absl::string_view json,
    absl::FunctionRef<absl::Status(const std::string& tensor,
                                   const std::string& file)>
        visit);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_WEIGHT_MAP_H_
