#include "espalier/io/internal/permutation.h"

#include "espalier/runtime/check.h"

namespace espalier::internal {

Permutation::Permutation(const Rng& rng, int64_t n) : rng_(rng), n_(n) {
  if (n <= kTableSize) {
    table_ = RandomPermutation(rng, n);
    return;
  }
  while ((uint64_t{1} << (2 * half_bits_)) < static_cast<uint64_t>(n)) {
    ++half_bits_;
  }
}

uint64_t Permutation::Encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (uint32_t round = 0; round < 8; ++round) {
    const RandomBlock block = Philox({static_cast<uint32_t>(right), round,
                                      static_cast<uint32_t>(rng_.stream),
                                      static_cast<uint32_t>(rng_.stream >> 32)},
                                     rng_.seed);
    const uint64_t next = (left ^ block[0]) & mask;
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

int64_t Permutation::At(int64_t i) const {
  ESPALIER_CHECK(i >= 0 && i < n_, "element ", i, " of ", n_);
  if (!table_.empty()) return table_[static_cast<size_t>(i)];
  auto value = static_cast<uint64_t>(i);
  do {
    value = Encrypt(value);
  } while (value >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(value);
}

}  // namespace espalier::internal
