#include "espalier/dist/mesh.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "espalier/runtime/check.h"
#include "espalier/runtime/shape.h"

namespace espalier {

absl::string_view ToString(MeshAxis axis) {
  constexpr absl::string_view kNames[] = {"tp", "cp", "dp", "pp"};
  return kNames[static_cast<size_t>(axis)];
}

absl::StatusOr<Mesh> Mesh::Create(const std::array<int, kNumMeshAxes>& sizes,
                                  int world_size) {
  int64_t product = 1;
  std::string spelled;
  for (int axis = 0; axis < kNumMeshAxes; ++axis) {
    const int size = sizes[static_cast<size_t>(axis)];
    const absl::string_view name = ToString(static_cast<MeshAxis>(axis));
    if (size < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "mesh axis ", name, " is ", size, ", expected 1 or more"));
    }
    product *= size;
    absl::StrAppend(&spelled, axis == 0 ? "" : ",", name, "=", size);
    if (product > world_size) break;
  }
  if (product != world_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mesh ", spelled, " does not fill a world of ", world_size, " ranks"));
  }
  return Mesh(sizes);
}

int Mesh::world_size() const {
  int product = 1;
  for (const int size : sizes_) product *= size;
  return product;
}

int Mesh::coordinate(int rank, MeshAxis axis) const {
  ESPALIER_CHECK(rank >= 0 && rank < world_size(), "rank is ", rank,
                 " of a world of ", world_size());
  for (int below = 0; below < static_cast<int>(axis); ++below) {
    rank /= sizes_[static_cast<size_t>(below)];
  }
  return rank % size(axis);
}

std::vector<int> Mesh::Group(int rank, absl::Span<const MeshAxis> axes) const {
  std::vector<int> group;
  for (int other = 0; other < world_size(); ++other) {
    bool same = true;
    for (int a = 0; a < kNumMeshAxes; ++a) {
      const auto axis = static_cast<MeshAxis>(a);
      const bool free = std::find(axes.begin(), axes.end(), axis) != axes.end();
      same =
          same && (free || coordinate(other, axis) == coordinate(rank, axis));
    }
    if (same) group.push_back(other);
  }
  return group;
}

}  // namespace espalier
