#include "espalier/io/internal/tensor_cut.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace espalier::internal {

namespace {

struct Ranges {
  std::vector<std::pair<int64_t, int64_t>> items;
  int64_t total() const {
    int64_t sum = 0;
    for (const auto& [begin, end] : items) sum += end - begin;
    return sum;
  }
};

// What is asked of the cut dim.
struct DimCut {
  int dim = -1;        // of the stored tensor; -1: none
  int num_pieces = 1;  // at most the axis
  std::vector<Ranges> pieces;
};

absl::Status Refuse(absl::string_view name, absl::string_view axis, int size,
                    absl::string_view what) {
  return absl::OutOfRangeError(
      absl::StrCat(name, ": ", axis, " ", size, " ", what));
}

// Logical ranges of piece `t` of `of`, in stored elements.
absl::Status StoredRanges(const TensorRule& rule, const StoredPart& part,
                          absl::string_view name, absl::string_view axis,
                          int of, DimCut* cut) {
  const TensorSplit& split = rule.split;
  const size_t logical = static_cast<size_t>(split.dim);
  const int64_t size = rule.shape[logical];
  const int64_t grain = part.grain[logical];
  std::vector<int64_t> blocks = split.blocks;
  if (blocks.empty()) blocks.push_back(size);
  cut->num_pieces = of;
  cut->pieces.resize(static_cast<size_t>(of));
  for (int t = 0; t < of; ++t) {
    int64_t start = 0;
    for (const int64_t block : blocks) {
      const int64_t length = block / of;
      if (block % of != 0 || length % split.unit != 0) {
        return Refuse(
            name, axis, of,
            absl::StrCat("cuts dim ", logical, " of ", block,
                         " elements, which come in units of ", split.unit));
      }
      const int64_t begin = start + t * length;
      const int64_t end = begin + length;
      start += block;
      if (begin % grain != 0 || (end % grain != 0 && end != size)) {
        return Refuse(name, axis, of,
                      absl::StrCat("cuts dim ", logical, " at element ",
                                   end % grain != 0 ? end : begin,
                                   ", inside a group of ", grain));
      }
      cut->pieces[static_cast<size_t>(t)].items.emplace_back(
          begin / grain, end / grain + (end % grain != 0 ? 1 : 0));
    }
  }
  return absl::OkStatus();
}

// Heads that are fewer than ranks are shared by neighbours.
int NumPieces(const TensorRule& rule, int axis_size) {
  const TensorSplit& split = rule.split;
  if (!split.blocks.empty() || split.unit < 2) return axis_size;
  const int64_t units = rule.shape[static_cast<size_t>(split.dim)] / split.unit;
  return units > 0 && units < axis_size && axis_size % units == 0
             ? static_cast<int>(units)
             : axis_size;
}

absl::StatusOr<DimCut> CutDim(const TensorRule& rule, const StoredPart& part,
                              absl::string_view name, absl::string_view axis,
                              int axis_size) {
  DimCut cut;
  if (rule.split.dim < 0 || axis_size == 1) return cut;
  const size_t logical = static_cast<size_t>(rule.split.dim);
  if (part.grain.empty()) {
    const bool reorders =
        absl::EndsWith(part.pattern, ".weight_g_idx") && logical == 1;
    if (part.primary || reorders) {
      return Refuse(
          name, axis, axis_size,
          absl::StrCat("cannot cut the form ", rule.form_names[part.form],
                       reorders ? " with reordered columns" : ""));
    }
    return cut;
  }
  const size_t ndim = rule.shape.size();
  cut.dim = rule.split.dim;
  if (part.transposed && logical + 2 >= ndim) {
    cut.dim = static_cast<int>(2 * ndim - 3 - logical);
  }
  absl::Status status =
      StoredRanges(rule, part, name, axis, NumPieces(rule, axis_size), &cut);
  if (!status.ok()) return status;
  return cut;
}

}  // namespace

std::string ToString(const PieceGroup& group) {
  std::string text;
  const auto add = [&](const char* axis, int index) {
    if (index < 0) return;
    absl::StrAppend(&text, text.empty() ? "" : "-",
                    absl::StrFormat("%s%02d", axis, index));
  };
  add("pp", group.pp);
  add("ep", group.ep);
  add("tp", group.tp);
  if (group.tp >= 0) absl::StrAppendFormat(&text, "of%02d", group.tp_of);
  add("etp", group.etp);
  return text.empty() ? "all" : text;
}

int64_t TensorCut::PieceRowBytes(const TensorPiece& piece) const {
  int64_t elements = 0;
  for (const auto& [begin, end] : piece.ranges) elements += end - begin;
  return elements * inner_bytes;
}

int64_t TensorCut::PieceBytes(const TensorPiece& piece) const {
  return (piece.outer_end - piece.outer_begin) * PieceRowBytes(piece);
}

TensorCut WholeTensor(absl::Span<const int64_t> shape, int64_t num_bytes,
                      const PieceGroup& group) {
  TensorCut cut;
  cut.inner_bytes = num_bytes;
  TensorPiece& piece = cut.pieces.emplace_back();
  piece.group = group;
  piece.outer_end = 1;
  piece.ranges.emplace_back(0, 1);
  piece.shape.assign(shape.begin(), shape.end());
  return cut;
}

absl::StatusOr<TensorCut> CutTensor(const FamilyTable& table,
                                    const FamilyTable::Match& match,
                                    absl::string_view name,
                                    absl::Span<const int64_t> shape,
                                    SafetensorsDType dtype,
                                    const ShardMesh& mesh) {
  const TensorRule& rule = table.rules()[match.rule];
  const StoredPart& part = rule.parts[match.part];
  const bool expert = rule.expert_hole >= 0 || rule.expert_dim >= 0;
  PieceGroup base;
  base.pp = table.StageOf(rule, match.numbers, mesh.pp);
  const int64_t num_experts = table.facts().num_experts;
  if (expert && num_experts % mesh.ep != 0) {
    return Refuse(name, "ep", mesh.ep,
                  absl::StrCat("does not divide ", num_experts, " experts"));
  }
  const absl::string_view axis = expert ? "etp" : "tp";
  const int axis_size = expert ? mesh.etp : mesh.tp;
  const absl::StatusOr<DimCut> dim_cut =
      CutDim(rule, part, name, axis, axis_size);
  if (!dim_cut.ok()) return dim_cut.status();
  if (rule.expert_hole >= 0 && mesh.ep > 1) {
    const int64_t number = match.numbers[static_cast<size_t>(rule.expert_hole)];
    base.ep = static_cast<int>(number / (num_experts / mesh.ep));
  }
  const int stacked = rule.expert_dim >= 0 && mesh.ep > 1 ? mesh.ep : 1;
  TensorCut cut;
  int64_t num_bytes = BitsOf(dtype);
  for (const int64_t extent : shape) num_bytes *= extent;
  num_bytes /= 8;
  if (dim_cut->dim < 0 && stacked == 1) {
    return WholeTensor(shape, num_bytes, base);
  }
  const size_t dim = dim_cut->dim < 0 ? 0 : static_cast<size_t>(dim_cut->dim);
  int64_t inner_bits = BitsOf(dtype);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i < dim) cut.outer *= shape[i];
    if (i > dim) inner_bits *= shape[i];
  }
  cut.extent = shape[dim];
  cut.inner_bytes = inner_bits / 8;
  if (inner_bits % 8 != 0) {
    return Refuse(name, axis, axis_size, "cuts inside a byte");
  }
  for (int e = 0; e < stacked; ++e) {
    for (int t = 0; t < dim_cut->num_pieces; ++t) {
      TensorPiece& piece = cut.pieces.emplace_back();
      piece.group = base;
      if (stacked > 1) piece.group.ep = e;
      piece.shape.assign(shape.begin(), shape.end());
      piece.outer_end = cut.outer;
      if (dim_cut->dim < 0) {
        const int64_t count = cut.extent / stacked;
        piece.ranges.emplace_back(e * count, (e + 1) * count);
        piece.shape[0] = count;
        continue;
      }
      const Ranges& ranges = dim_cut->pieces[static_cast<size_t>(t)];
      piece.ranges = ranges.items;
      piece.shape[dim] = ranges.total();
      piece.outer_begin = cut.outer / stacked * e;
      piece.outer_end = cut.outer / stacked * (e + 1);
      if (stacked > 1) piece.shape[0] /= stacked;
      if (expert) {
        piece.group.etp = t;
      } else {
        piece.group.tp = t;
        piece.group.tp_of = dim_cut->num_pieces;
      }
    }
  }
  return cut;
}

}  // namespace espalier::internal
