#ifndef ESPALIER_IO_INTERNAL_PAIR_TABLE_H_
#define ESPALIER_IO_INTERNAL_PAIR_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/hash/hash.h"

namespace espalier::internal {

// What becomes of two neighbouring tokens: the lowest value goes first.
// rank << 32 | id of the token made; kNoMerge when they do not merge.
using MergeValue = uint64_t;
inline constexpr MergeValue kNoMerge = ~MergeValue{0};

// Pairs of token ids to MergeValues, made for looking up: open addressing,
// half full at most.
class PairTable {
 public:
  PairTable() { Rebuild(16); }

  // The last value of a pair counts. Ids are not negative.
  void Insert(int32_t left, int32_t right, MergeValue value) {
    if ((size_ + 1) * 2 > slots_.size()) Rebuild(slots_.size() * 2);
    Slot& slot = slots_[Find(KeyOf(left, right))];
    if (slot.value == kNoMerge) ++size_;
    slot = {KeyOf(left, right), value};
  }
  MergeValue Find(int32_t left, int32_t right) const {
    return slots_[Find(KeyOf(left, right))].value;
  }

 private:
  struct Slot {
    uint64_t key = ~uint64_t{0};
    MergeValue value = kNoMerge;
  };

  static uint64_t KeyOf(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 |
           static_cast<uint32_t>(right);
  }
  // Of the pair's slot, or of the free one where it belongs.
  size_t Find(uint64_t key) const {
    uint64_t hash = (key ^ key >> 29) * seed_;
    size_t at = static_cast<size_t>((hash ^ hash >> 32) * seed_ >> shift_);
    const size_t mask = slots_.size() - 1;
    while (slots_[at].key != key && slots_[at].value != kNoMerge) {
      at = (at + 1) & mask;
    }
    return at;
  }
  void Rebuild(size_t capacity) {
    std::vector<Slot> old(capacity);
    old.swap(slots_);
    shift_ = 64;
    for (size_t c = capacity; c > 1; c /= 2) --shift_;
    for (const Slot& slot : old) {
      if (slot.value != kNoMerge) slots_[Find(slot.key)] = slot;
    }
  }

  // Differs from one process to the next, so that no file can be made whose
  // pairs all meet in one place.
  uint64_t seed_ = absl::Hash<uint64_t>()(0x9E3779B97F4A7C15) | 1;
  int shift_ = 64;
  size_t size_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_PAIR_TABLE_H_
