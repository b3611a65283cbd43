#include "espalier/io/internal/sample_cut.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace espalier::internal {

namespace {

// How many of its tokens are not truncated.
int64_t KeptTokens(const EncodedSample& sample, const CutOptions& options) {
  const auto size = static_cast<int64_t>(sample.ids.size());
  return options.long_samples == LongSamplePolicy::kTruncate
             ? std::min(size, options.max_tokens)
             : size;
}

bool Trains(const EncodedSample& sample) {
  return std::any_of(sample.weights.begin() + !sample.weights.empty(),
                     sample.weights.end(),
                     [](float weight) { return weight > 0; });
}

int64_t NumTrained(const Piece& piece) {
  return std::count_if(piece.weights.begin(), piece.weights.end(),
                       [](float weight) { return weight > 0; });
}

}  // namespace

Piece MakePiece(const EncodedSample& sample, const PieceRef& ref,
                const CutOptions& options) {
  const int64_t last = KeptTokens(sample, options);
  Piece piece;
  piece.ref = ref;
  piece.ids.assign(sample.ids.begin() + ref.begin,
                   sample.ids.begin() + ref.end);
  piece.labels.resize(piece.ids.size(), kIgnoreLabel);
  piece.weights.resize(piece.ids.size(), 0);
  for (int64_t at = ref.begin; at < ref.end && at + 1 < last; ++at) {
    const auto next = static_cast<size_t>(at) + 1;
    if (!(sample.weights[next] > 0)) continue;
    const auto i = static_cast<size_t>(at - ref.begin);
    piece.labels[i] = sample.ids[next];
    piece.weights[i] = sample.weights[next];
  }
  return piece;
}

void CutSample(const EncodedSample& sample, int32_t group, int64_t index,
               const CutOptions& options, std::vector<Piece>* pieces,
               DataReport* report) {
  const auto size = static_cast<int64_t>(sample.ids.size());
  const bool is_long = size > options.max_tokens;
  ++report->num_samples;
  report->num_tokens += size;
  report->num_long_samples += is_long;
  if (is_long && options.long_samples == LongSamplePolicy::kDrop &&
      Trains(sample)) {
    ++report->num_dropped_samples;
    report->num_dropped_tokens += size;
    return;
  }
  const int64_t kept = KeptTokens(sample, options);
  const size_t before = pieces->size();
  for (int64_t begin = 0; begin < kept; begin += options.max_tokens) {
    const PieceRef ref{group, index, begin,
                       std::min(begin + options.max_tokens, kept)};
    Piece piece = MakePiece(sample, ref, options);
    const int64_t trained = NumTrained(piece);
    if (trained == 0) {
      report->num_untrained_tokens += ref.size();
      continue;
    }
    ++report->num_pieces;
    report->num_trained_tokens += trained;
    report->num_kept_tokens += ref.size();
    pieces->push_back(std::move(piece));
  }
  if (pieces->size() > before) {
    report->num_truncated_tokens += size - kept;
    return;
  }
  ++report->num_untrained_samples;
  report->num_untrained_tokens += size - kept;
}

}  // namespace espalier::internal
