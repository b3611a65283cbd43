#ifndef ESPALIER_IO_INTERNAL_WEIGHT_VIEW_H_
#define ESPALIER_IO_INTERNAL_WEIGHT_VIEW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "espalier/io/internal/weight_source.h"

namespace espalier::internal {

// How a model_type lays out its routed experts: facts of the architecture,
// never guessed from sizes.
//   separate  PREFIX.E.GATE.weight [I, H], .UP. [I, H], .DOWN. [H, I]
//   stacked   PREFIX.gate_up_proj [E, 2I, H] (gate rows first),
//   PREFIX.down_proj
//             [E, H, I]
struct ExpertNames {
  std::string prefix;  // the module's name below its layer: "mlp.experts"
  std::string gate, up, down;
};
// UNIMPLEMENTED for a model_type that has no two layouts, by name.
absl::StatusOr<ExpertNames> ExpertNamesOf(const std::string& model_type);

// A weight to be written, put together from rows of the source.
struct WeightView {
  struct Piece {
    size_t weight = 0;
    int64_t first = 0;
    int64_t rows = 0;
  };
  std::string name;
  std::vector<int64_t> shape;
  SafetensorsDType dtype = SafetensorsDType::kBF16;
  std::vector<Piece> pieces;  // one after another; of the same width
  // One piece, [E, R, C] in the source, seen as [E, C, R].
  bool transposed = false;

  // A weight of one dim has rows of one element.
  int64_t columns() const { return shape.size() < 2 ? 1 : shape.back(); }
  int64_t rows() const;
};

// Rows [start, start + count) of the view. A transposed view decodes each slice
// once for every `window` rows, so take many.
absl::Status ReadView(const WeightSource& source, const WeightView& view,
                      int64_t start, int64_t count, absl::Span<float> out);

enum class ExpertLayout : uint8_t { kKeep, kStacked, kSeparate };

// The weights of the source in this layout, in its order. INVALID_ARGUMENT
// where experts are missing or differ in shape or dtype, or where there is
// nothing to change.
absl::StatusOr<std::vector<WeightView>> MakeViews(const WeightSource& source,
                                                  ExpertLayout layout);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_WEIGHT_VIEW_H_
