#ifndef ESPALIER_RUNTIME_INTERNAL_ARENA_H_
#define ESPALIER_RUNTIME_INTERNAL_ARENA_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "espalier/runtime/internal/memory_source.h"

namespace espalier::internal {

// Blocks cut out of long ranges of address space: best fit, split at once,
// merged with free neighbours at once. Memory stands behind the ranges in
// chunks; a free block whose chunks all have memory is warm, any other cold.
// A range ends in one cold block, so growing extends what is free there
// instead of starting a new segment.
// Not thread-safe.
class Arena {
 public:
  // chunk_bytes: a power of two, a multiple of kMemoryUnit, at most
  // kRangeAlignment. `source` must outlive the arena.
  Arena(MemorySource& source, int64_t chunk_bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // The smallest warm free block that holds `bytes`, cut to that size; null
  // when there is none. Ties take the lowest address.
  // `bytes` > 0 is a multiple of kBlockAlignment, here and below.
  char* TakeWarm(int64_t bytes);

  // Where `bytes` could lie at the price of new chunks: the place that needs
  // the fewest. Reserves another range when none has room; none when the
  // source has no address space left.
  struct Place {
    char* data = nullptr;
    int64_t commit_bytes = 0;
  };
  std::optional<Place> FindPlace(int64_t bytes);
  // Takes a place that FindPlace just gave; null when the source refuses.
  char* TakePlace(const Place& place, int64_t bytes);

  // Frees a block that was taken.
  void Give(char* data);

  // Takes the memory from whole chunks of free blocks, smallest blocks first,
  // until at least `bytes` are gone or none is left; spares the block that
  // holds `keep`. Returns the bytes taken.
  int64_t Release(int64_t bytes, const char* keep);

  // Bytes of chunks with memory behind them.
  int64_t committed_bytes() const { return committed_bytes_; }
  // The longest free piece with memory behind it.
  int64_t LargestFreeBytes() const;

 private:
  struct Range {
    char* begin = nullptr;
    char* end = nullptr;
    std::vector<bool> committed;  // by chunk; beyond its end: cold
  };
  struct Block {
    int64_t bytes = 0;
    bool free = false;
    Range* range = nullptr;
  };
  using Blocks = std::map<char*, Block>;

  bool AddRange(int64_t bytes);
  int64_t Chunk(const Range& range, const char* data) const {
    return (data - range.begin) / chunk_bytes_;
  }
  bool IsCold(const Range& range, int64_t chunk) const {
    return chunk >= static_cast<int64_t>(range.committed.size()) ||
           !range.committed[static_cast<size_t>(chunk)];
  }
  int64_t ColdBytes(const Range& range, const char* data, int64_t bytes) const;
  bool Commit(Range& range, const char* data, int64_t bytes);
  int64_t Decommit(Blocks::iterator block, int64_t bytes);
  char* Cut(Blocks::iterator block, char* data, int64_t bytes);
  void AddFree(Blocks::iterator block);
  void RemoveFree(Blocks::iterator block);

  MemorySource& source_;
  const int64_t chunk_bytes_;
  int64_t committed_bytes_ = 0;
  int64_t held_bytes_ = 0;  // of address space
  std::vector<std::unique_ptr<Range>> ranges_;
  Blocks blocks_;                             // all, by address
  std::set<std::pair<int64_t, char*>> warm_;  // free, by size
  std::set<char*> cold_;                      // free, by address
};

}  // namespace espalier::internal

#endif  // ESPALIER_RUNTIME_INTERNAL_ARENA_H_
