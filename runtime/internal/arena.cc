#include "espalier/runtime/internal/arena.h"

#include <algorithm>
#include <iterator>

#include "espalier/runtime/internal/block_size.h"

namespace espalier::internal {

Arena::Arena(MemorySource& source, int64_t chunk_bytes)
    : source_(source), chunk_bytes_(chunk_bytes) {}

Arena::~Arena() {
  for (const auto& range : ranges_) {
    source_.Unreserve(
        range->begin, range->end - range->begin,
        static_cast<int64_t>(range->committed.size()) * chunk_bytes_);
  }
}

char* Arena::TakeWarm(int64_t bytes) {
  const auto best = warm_.lower_bound({bytes, nullptr});
  if (best == warm_.end()) return nullptr;
  return Cut(blocks_.find(best->second), best->second, bytes);
}

std::optional<Arena::Place> Arena::FindPlace(int64_t bytes) {
  std::optional<Place> best;
  const auto consider = [&](const Range& range, char* data) {
    const int64_t cold = ColdBytes(range, data, bytes);
    if (!best || cold < best->commit_bytes) best = Place{data, cold};
  };
  for (char* const data : cold_) {
    const Block& block = blocks_.find(data)->second;
    if (block.bytes < bytes) continue;
    consider(*block.range, data);
    // A hole may be warm at its end as well.
    char* const end = data + block.bytes;
    if (end != block.range->end) consider(*block.range, end - bytes);
  }
  if (!best && AddRange(bytes)) {
    const Range& range = *ranges_.back();
    consider(range, range.begin);
  }
  return best;
}

char* Arena::TakePlace(const Place& place, int64_t bytes) {
  const auto block = std::prev(blocks_.upper_bound(place.data));
  RemoveFree(block);
  const bool committed = Commit(*block->second.range, place.data, bytes);
  AddFree(block);
  return committed ? Cut(block, place.data, bytes) : nullptr;
}

void Arena::Give(char* data) {
  auto block = blocks_.find(data);
  Range* const range = block->second.range;
  const auto mergeable = [&](Blocks::iterator other) {
    return other->second.free && other->second.range == range;
  };
  const auto next = std::next(block);
  if (next != blocks_.end() && mergeable(next)) {
    RemoveFree(next);
    block->second.bytes += next->second.bytes;
    blocks_.erase(next);
  }
  if (block != blocks_.begin()) {
    const auto previous = std::prev(block);
    if (mergeable(previous)) {
      RemoveFree(previous);
      previous->second.bytes += block->second.bytes;
      blocks_.erase(block);
      block = previous;
    }
  }
  AddFree(block);
}

int64_t Arena::Release(int64_t bytes, const char* keep) {
  std::vector<char*> candidates;
  for (const auto& [size, data] : warm_) {
    if (size >= chunk_bytes_) candidates.push_back(data);
  }
  candidates.insert(candidates.end(), cold_.begin(), cold_.end());
  int64_t released = 0;
  for (char* const data : candidates) {
    if (released >= bytes) break;
    const auto block = blocks_.find(data);
    if (keep >= data && keep < data + block->second.bytes) continue;
    released += Decommit(block, bytes - released);
  }
  return released;
}

int64_t Arena::LargestFreeBytes() const {
  int64_t largest = warm_.empty() ? 0 : warm_.rbegin()->first;
  for (char* const data : cold_) {
    const Block& block = blocks_.find(data)->second;
    const Range& range = *block.range;
    const char* const end =
        std::min(data + block.bytes,
                 range.begin + static_cast<int64_t>(range.committed.size()) *
                                   chunk_bytes_);
    const char* begin = data;  // of a warm piece
    for (const char* p = data; p < end;) {
      const int64_t chunk = Chunk(range, p);
      p = std::min<const char*>(end, range.begin + (chunk + 1) * chunk_bytes_);
      if (IsCold(range, chunk)) begin = p;
      largest = std::max(largest, p - begin);
    }
  }
  return largest;
}

bool Arena::AddRange(int64_t bytes) {
  const int64_t least = RoundUp(bytes, kRangeAlignment);
  // Address space may be short: then a range is shorter.
  for (int64_t size = std::max(source_.RangeBytes(held_bytes_), least);;
       size = std::max(RoundUp(size / 2, kRangeAlignment), least)) {
    if (char* const begin = source_.Reserve(size)) {
      ranges_.push_back(std::make_unique<Range>());
      Range& range = *ranges_.back();
      range.begin = begin;
      range.end = begin + size;
      held_bytes_ += size;
      AddFree(blocks_.emplace(begin, Block{size, true, &range}).first);
      return true;
    }
    if (size == least) return false;
  }
}

int64_t Arena::ColdBytes(const Range& range, const char* data,
                         int64_t bytes) const {
  int64_t cold = 0;
  const int64_t last = Chunk(range, data + bytes - 1);
  const auto known = static_cast<int64_t>(range.committed.size());
  int64_t chunk = Chunk(range, data);
  for (; chunk <= last && chunk < known; ++chunk) {
    if (IsCold(range, chunk)) ++cold;
  }
  return (cold + last + 1 - chunk) * chunk_bytes_;
}

bool Arena::Commit(Range& range, const char* data, int64_t bytes) {
  const int64_t last = Chunk(range, data + bytes - 1);
  if (last >= static_cast<int64_t>(range.committed.size())) {
    range.committed.resize(static_cast<size_t>(last) + 1);
  }
  for (int64_t chunk = Chunk(range, data); chunk <= last;) {
    int64_t end = chunk;
    while (end <= last && IsCold(range, end)) ++end;
    if (end > chunk) {
      const int64_t size = (end - chunk) * chunk_bytes_;
      if (!source_.Commit(range.begin + chunk * chunk_bytes_, size)) {
        return false;
      }
      committed_bytes_ += size;
      std::fill(range.committed.begin() + chunk, range.committed.begin() + end,
                true);
    }
    chunk = end + 1;
  }
  return true;
}

int64_t Arena::Decommit(Blocks::iterator block, int64_t bytes) {
  Range& range = *block->second.range;
  const int64_t offset = block->first - range.begin;
  const int64_t end = std::min((offset + block->second.bytes) / chunk_bytes_,
                               static_cast<int64_t>(range.committed.size()));
  int64_t released = 0;
  RemoveFree(block);
  for (int64_t chunk = RoundUp(offset, chunk_bytes_) / chunk_bytes_;
       chunk < end && released < bytes; ++chunk) {
    if (IsCold(range, chunk)) continue;
    source_.Decommit(range.begin + chunk * chunk_bytes_, chunk_bytes_);
    range.committed[static_cast<size_t>(chunk)] = false;
    released += chunk_bytes_;
  }
  AddFree(block);
  committed_bytes_ -= released;
  return released;
}

char* Arena::Cut(Blocks::iterator block, char* data, int64_t bytes) {
  RemoveFree(block);
  Range* const range = block->second.range;
  char* const begin = block->first;
  char* const end = begin + block->second.bytes;
  block->second.bytes = data - begin;
  auto taken = block;
  if (data == begin) {
    block->second = {bytes, false, range};
  } else {
    AddFree(block);
    taken = blocks_.emplace_hint(std::next(block), data,
                                 Block{bytes, false, range});
  }
  if (data + bytes < end) {
    AddFree(blocks_.emplace_hint(std::next(taken), data + bytes,
                                 Block{end - data - bytes, true, range}));
  }
  return data;
}

void Arena::AddFree(Blocks::iterator block) {
  char* const data = block->first;
  const int64_t size = block->second.bytes;
  block->second.free = true;
  if (ColdBytes(*block->second.range, data, size) == 0) {
    warm_.emplace(size, data);
  } else {
    cold_.insert(data);
  }
}

void Arena::RemoveFree(Blocks::iterator block) {
  if (warm_.erase({block->second.bytes, block->first}) == 0) {
    cold_.erase(block->first);
  }
}

}  // namespace espalier::internal
