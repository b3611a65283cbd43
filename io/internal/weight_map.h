#ifndef ESPALIER_IO_INTERNAL_WEIGHT_MAP_H_
#define ESPALIER_IO_INTERNAL_WEIGHT_MAP_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace espalier::internal {

inline constexpr int64_t kMaxIndexBytes = int64_t{64} << 20;

// Calls visit(tensor, file) for each item of the weight_map of a
// model.safetensors.index.json, in the order of the text. Fails
// INVALID_ARGUMENT on anything but an object with a weight_map of strings, on
// two weight_maps, and on a value that is not a bare file name; an error of
// visit ends it. Other keys are skipped; metadata.total_size is often wrong and
// never trusted: `total_size`, where given, becomes its text, "" where there is
// none. Keeps nothing in memory.
absl::Status VisitWeightMap(
    absl::string_view json,
    absl::FunctionRef<absl::Status(const std::string& tensor,
                                   const std::string& file)>
        visit,
    std::string* total_size = nullptr);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_WEIGHT_MAP_H_
