#include "espalier/io/internal/sample_drawer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace espalier::internal {

SampleDrawer::SampleDrawer(std::vector<DataGroup> groups,
                           const DataStreamOptions& options)
    : groups_(std::move(groups)),
      options_(options),
      cut_{options.max_sample_tokens > 0 ? options.max_sample_tokens
                                         : options.pack_tokens,
           options.long_samples},
      positions_(groups_.size()),
      pieces_in_epoch_(groups_.size()),
      orders_(groups_.size()) {
  for (const DataGroup& group : groups_) {
    int64_t end = 0;
    std::vector<int64_t>& ends = ends_.emplace_back();
    for (const auto& source : group.sources) {
      end += source->size();
      ends.push_back(end);
    }
  }
}

std::string SampleDrawer::Describe() const {
  std::string text;
  for (const DataGroup& group : groups_) {
    absl::StrAppend(&text, "group of weight ", group.weight, "\n");
    for (const auto& source : group.sources) {
      absl::StrAppend(&text, source->Describe(), "\n");
    }
  }
  return text;
}

const SampleSource& SampleDrawer::Locate(size_t group, int64_t* index) const {
  const std::vector<int64_t>& ends = ends_[group];
  const auto end = std::upper_bound(ends.begin(), ends.end(), *index);
  const auto source = static_cast<size_t>(end - ends.begin());
  if (source > 0) *index -= ends[source - 1];
  return *groups_[group].sources[source];
}

absl::StatusOr<EncodedSample> SampleDrawer::Get(size_t group,
                                                int64_t sample) const {
  const SampleSource& source = Locate(group, &sample);
  return source.Get(sample);
}

absl::StatusOr<bool> SampleDrawer::InSplit(size_t group, int64_t sample) const {
  if (options_.split == DataSplit::kAll) return true;
  const SampleSource& source = Locate(group, &sample);
  const auto hash = source.Hash(sample);
  if (!hash.ok()) return hash.status();
  const bool held_out =
      std::ldexp(static_cast<double>(*hash), -64) < options_.held_out_fraction;
  return held_out == (options_.split == DataSplit::kHeldOut);
}

bool SampleDrawer::Ended(size_t group) const {
  return options_.num_epochs > 0 &&
         positions_[group].epoch == options_.num_epochs;
}

int SampleDrawer::NextGroup() const {
  int best = -1;
  double best_share = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (Ended(g)) continue;
    const double share =
        static_cast<double>(positions_[g].num_tokens) / groups_[g].weight;
    if (best >= 0 && share >= best_share) continue;
    best = static_cast<int>(g);
    best_share = share;
  }
  return best;
}

absl::StatusOr<bool> SampleDrawer::Draw(std::vector<Piece>* pieces,
                                        DataReport* report) {
  const size_t before = pieces->size();
  while (pieces->size() == before) {
    const int chosen = NextGroup();
    if (chosen < 0) return false;
    const auto g = static_cast<size_t>(chosen);
    GroupPosition& at = positions_[g];
    int64_t index = at.position;
    if (options_.shuffle) {
      if (!orders_[g]) {
        orders_[g].emplace(
            Rng{options_.seed,
                (uint64_t{g} << 32) + static_cast<uint64_t>(at.epoch)},
            GroupSize(g));
      }
      index = orders_[g]->At(at.position);
    }
    // The other split is told apart without encoding it.
    const auto wanted = InSplit(g, index);
    absl::Status status = wanted.status();
    if (wanted.ok() && !*wanted) ++report->num_other_split;
    if (wanted.ok() && *wanted) {
      const auto sample = Get(g, index);
      status = sample.status();
      if (sample.ok()) {
        const int64_t kept = report->num_kept_tokens;
        CutSample(*sample, chosen, index, cut_, pieces, report);
        at.num_tokens += report->num_kept_tokens - kept;
      }
    }
    if (!status.ok()) {
      if (!options_.skip_bad_records || !absl::IsInvalidArgument(status)) {
        return status;
      }
      if (report->num_bad_records++ == 0) {
        report->first_bad_record = std::string(status.message());
      }
    }
    pieces_in_epoch_[g] += static_cast<int64_t>(pieces->size() - before);
    if (++at.position < GroupSize(g)) continue;
    at.position = 0;
    ++at.epoch;
    orders_[g].reset();
    if (std::exchange(pieces_in_epoch_[g], 0) == 0 &&
        options_.num_epochs == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "no sample of ", GroupSize(g),
          " to train on: ", report->num_bad_records, " bad, ",
          report->num_dropped_samples, " too long and dropped, ",
          report->num_untrained_samples, " without a token to predict, ",
          report->num_other_split, " of the other split",
          report->num_bad_records > 0 ? "; first bad record: " : "",
          report->first_bad_record, "; data:\n", Describe()));
    }
  }
  return true;
}

absl::StatusOr<Piece> SampleDrawer::Make(const PieceRef& ref) const {
  const auto g = static_cast<size_t>(ref.group);
  if (ref.group < 0 || g >= groups_.size() || ref.sample < 0 ||
      ref.sample >= GroupSize(g)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cursor: no sample ", ref.sample, " of group ", ref.group));
  }
  const auto sample = Get(g, ref.sample);
  if (!sample.ok()) return sample.status();
  const auto size = static_cast<int64_t>(sample->ids.size());
  if (ref.begin < 0 || ref.end <= ref.begin || ref.end > size ||
      ref.size() > cut_.max_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("cursor: tokens [",
                                                   ref.begin, ", ", ref.end,
                                                   ") of a sample of ", size));
  }
  return MakePiece(*sample, ref, cut_);
}

absl::Status SampleDrawer::Seek(std::vector<GroupPosition> positions) {
  if (positions.size() != groups_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cursor: ", positions.size(), " groups, expected ", groups_.size()));
  }
  for (size_t g = 0; g < positions.size(); ++g) {
    const GroupPosition& at = positions[g];
    if (at.epoch < 0 || at.position < 0 || at.position >= GroupSize(g) ||
        at.num_tokens < 0 ||
        (options_.num_epochs > 0 && at.epoch > options_.num_epochs)) {
      return absl::InvalidArgumentError(
          absl::StrCat("cursor: epoch ", at.epoch, ", position ", at.position,
                       " in group ", g, " of ", GroupSize(g), " samples"));
    }
  }
  positions_ = std::move(positions);
  for (auto& order : orders_) order.reset();
  // A position inside an epoch says that something was drawn from it.
  for (int64_t& pieces : pieces_in_epoch_) pieces = 1;
  return absl::OkStatus();
}

}  // namespace espalier::internal
