#include "espalier/io/sample_packer.h"

#include <iterator>
#include <utility>

#include "espalier/runtime/check.h"

namespace espalier {

TokenBatch Pack::ToBatch() const {
  TokenBatch batch;
  const auto total = static_cast<size_t>(num_tokens);
  batch.ids.reserve(total);
  batch.labels.reserve(total);
  batch.weights.reserve(total);
  batch.positions.reserve(total);
  batch.cu_seqlens.push_back(0);
  for (const Piece& piece : pieces) {
    batch.ids.insert(batch.ids.end(), piece.ids.begin(), piece.ids.end());
    batch.labels.insert(batch.labels.end(), piece.labels.begin(),
                        piece.labels.end());
    batch.weights.insert(batch.weights.end(), piece.weights.begin(),
                         piece.weights.end());
    for (size_t i = 0; i < piece.ids.size(); ++i) {
      batch.positions.push_back(static_cast<int32_t>(i));
    }
    batch.cu_seqlens.push_back(static_cast<int32_t>(batch.ids.size()));
  }
  return batch;
}

SamplePacker::SamplePacker(int64_t budget_tokens, int64_t max_open)
    : budget_tokens_(budget_tokens), max_open_(static_cast<size_t>(max_open)) {
  ESPALIER_CHECK(budget_tokens >= 1 && max_open >= 1, "budget ", budget_tokens,
                 ", open packs ", max_open);
}

void SamplePacker::Add(Piece piece, std::vector<Pack>* out) {
  const int64_t size = piece.ref.size();
  ESPALIER_CHECK(size >= 1 && size <= budget_tokens_, "a piece of ", size,
                 " tokens for a budget of ", budget_tokens_);
  auto best = open_.end(), fullest = open_.begin();
  for (auto pack = open_.begin(); pack != open_.end(); ++pack) {
    if (pack->num_tokens > fullest->num_tokens) fullest = pack;
    if (pack->num_tokens + size > budget_tokens_) continue;
    if (best == open_.end() || pack->num_tokens > best->num_tokens) best = pack;
  }
  if (best == open_.end()) {
    if (open_.size() == max_open_) {
      out->push_back(std::move(*fullest));
      open_.erase(fullest);
    }
    open_.emplace_back();
    best = std::prev(open_.end());
  }
  best->num_tokens += size;
  best->pieces.push_back(std::move(piece));
  if (best->num_tokens < budget_tokens_) return;
  out->push_back(std::move(*best));
  open_.erase(best);
}

void SamplePacker::Flush(std::vector<Pack>* out) {
  for (Pack& pack : open_) out->push_back(std::move(pack));
  open_.clear();
}

}  // namespace espalier
