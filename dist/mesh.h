#ifndef ESPALIER_DIST_MESH_H_
#define ESPALIER_DIST_MESH_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace espalier {

enum class MeshAxis : uint8_t { kTp, kCp, kDp, kPp };
inline constexpr int kNumMeshAxes = 4;

// "tp", "cp", "dp", "pp"
absl::string_view ToString(MeshAxis axis);

// The ranks of a job on a grid. Rank order: tp fastest, then cp, dp, pp, so
// that tensor-parallel groups are neighbours and pipeline stages lie farthest
// apart. Every rank computes every group from the sizes alone.
class Mesh {
 public:
  // Sizes by axis, each >= 1. Fails INVALID_ARGUMENT on others and when their
  // product is not `world_size`.
  static absl::StatusOr<Mesh> Create(const std::array<int, kNumMeshAxes>& sizes,
                                     int world_size);

  int size(MeshAxis axis) const { return sizes_[static_cast<size_t>(axis)]; }
  int world_size() const;
  // Position of a rank along an axis. rank in [0, world_size).
  int coordinate(int rank, MeshAxis axis) const;
  // The ranks, ascending, that differ from `rank` along `axes` only.
  std::vector<int> Group(int rank, absl::Span<const MeshAxis> axes) const;

 private:
  explicit Mesh(const std::array<int, kNumMeshAxes>& sizes) : sizes_(sizes) {}
  std::array<int, kNumMeshAxes> sizes_;
};

}  // namespace espalier

#endif  // ESPALIER_DIST_MESH_H_
