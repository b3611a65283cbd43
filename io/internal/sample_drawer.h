#ifndef ESPALIER_IO_INTERNAL_SAMPLE_DRAWER_H_
#define ESPALIER_IO_INTERNAL_SAMPLE_DRAWER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "espalier/io/data_stream.h"
#include "espalier/io/internal/permutation.h"
#include "espalier/io/internal/sample_cut.h"

namespace espalier::internal {

// Draws samples from the groups and cuts them into pieces.
class SampleDrawer {
 public:
  SampleDrawer(std::vector<DataGroup> groups, const DataStreamOptions& options);

  // Appends the pieces of the next sample that has any; false at the end.
  absl::StatusOr<bool> Draw(std::vector<Piece>* pieces, DataReport* report);

  // The tokens of a piece that was drawn before.
  absl::StatusOr<Piece> Make(const PieceRef& ref) const;

  const std::vector<GroupPosition>& positions() const { return positions_; }
  absl::Status Seek(std::vector<GroupPosition> positions);
  // Of all sources, one line each.
  std::string Describe() const;

 private:
  bool Ended(size_t group) const;
  int NextGroup() const;
  int64_t GroupSize(size_t group) const { return ends_[group].back(); }
  // Sample `*index` of a group as its source counts it.
  const SampleSource& Locate(size_t group, int64_t* index) const;
  absl::StatusOr<EncodedSample> Get(size_t group, int64_t sample) const;
  absl::StatusOr<bool> InSplit(size_t group, int64_t sample) const;

  const std::vector<DataGroup> groups_;
  const DataStreamOptions options_;
  const CutOptions cut_;
  std::vector<std::vector<int64_t>> ends_;  // samples up to each source's end
  std::vector<GroupPosition> positions_;
  std::vector<int64_t> pieces_in_epoch_;  // of each group, since its start
  std::vector<std::optional<Permutation>> orders_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_SAMPLE_DRAWER_H_
