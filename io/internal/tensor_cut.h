#ifndef ESPALIER_IO_INTERNAL_TENSOR_CUT_H_
#define ESPALIER_IO_INTERNAL_TENSOR_CUT_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/family_table.h"
#include "espalier/io/shard.h"

namespace espalier::internal {

// Where a piece lies on the mesh. -1: the same on all of that axis.
struct PieceGroup {
  int pp = -1;
  int ep = -1;
  int tp = -1;
  int tp_of = -1;  // number of pieces; rank t of T reads piece t * tp_of / T
  int etp = -1;

  friend bool operator==(const PieceGroup&, const PieceGroup&) = default;
  friend bool operator<(const PieceGroup& a, const PieceGroup& b) {
    return std::tie(a.pp, a.ep, a.tp, a.tp_of, a.etp) <
           std::tie(b.pp, b.ep, b.tp, b.tp_of, b.etp);
  }
};
// "all", "pp00", "pp00-tp01of02", "pp03-ep12-etp00"
std::string ToString(const PieceGroup& group);

// A part of a tensor: of rows [outer_begin, outer_end) the ranges of elements
// of the cut dim.
struct TensorPiece {
  PieceGroup group;
  int64_t outer_begin = 0;
  int64_t outer_end = 0;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  std::vector<int64_t> shape;
};

// A stored tensor as outer x extent x inner, cut along extent, and the first
// dim where that counts experts. The pieces cover it without overlap.
struct TensorCut {
  int64_t outer = 1;
  int64_t extent = 1;
  int64_t inner_bytes = 0;
  std::vector<TensorPiece> pieces;

  int64_t row_bytes() const { return extent * inner_bytes; }
  int64_t PieceBytes(const TensorPiece& piece) const;
  // Bytes of one outer row of a piece.
  int64_t PieceRowBytes(const TensorPiece& piece) const;
};

// How the tensor that `match` names is cut for the mesh; shape and dtype are
// those of the file. OUT_OF_RANGE, naming it, where the mesh cuts through a
// head, a group of packed weights, or what cannot be cut at all.
absl::StatusOr<TensorCut> CutTensor(const FamilyTable& table,
                                    const FamilyTable::Match& match,
                                    absl::string_view name,
                                    absl::Span<const int64_t> shape,
                                    SafetensorsDType dtype,
                                    const ShardMesh& mesh);
// One piece for every rank: of tensors beside the table.
TensorCut WholeTensor(absl::Span<const int64_t> shape, int64_t num_bytes,
                      const PieceGroup& group);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_TENSOR_CUT_H_
