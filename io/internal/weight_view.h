#ifndef ESPALIER_IO_INTERNAL_WEIGHT_VIEW_H_
#define ESPALIER_IO_INTERNAL_WEIGHT_VIEW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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

// The weights of a source in a layout of its experts, in its order; made one by
// one when asked for, so that half a million of them take 8 bytes each.
class WeightViews {
 public:
  // INVALID_ARGUMENT where experts are missing or differ in shape or dtype, or
  // where there is nothing to change. `source` outlives the result.
  static absl::StatusOr<WeightViews> Make(const WeightSource& source,
                                          ExpertLayout layout);

  size_t size() const { return items_.size(); }
  absl::StatusOr<WeightView> Get(size_t index) const;

 private:
  enum class Kind : uint8_t { kWhole, kStacked, kSeparate };
  struct Item {
    uint32_t index = 0;      // of the source's weights, or of stacked_
    uint32_t part : 30 = 0;  // kSeparate: number among the parts of the weight
    uint32_t kind : 2 = 0;
  };

  explicit WeightViews(const WeightSource& source) : source_(&source) {}
  void Add(Kind kind, size_t index, size_t part = 0) {
    Item& item = items_.emplace_back();
    item.index = static_cast<uint32_t>(index);
    item.part = static_cast<uint32_t>(part);
    item.kind = static_cast<uint32_t>(kind);
  }
  absl::Status Stack();
  absl::Status Separate();
  absl::Status StackModule(absl::string_view module,
                           const std::vector<std::string>& projections,
                           absl::string_view name);
  absl::StatusOr<WeightView> SeparatePart(const Item& item) const;

  const WeightSource* source_;
  ExpertNames names_;
  std::vector<Item> items_;
  std::vector<WeightView> stacked_;  // two a layer
  // kStacked, while they are made: weights by name.
  absl::flat_hash_map<absl::string_view, uint32_t> by_name_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_WEIGHT_VIEW_H_
