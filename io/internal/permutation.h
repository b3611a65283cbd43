#ifndef ESPALIER_IO_INTERNAL_PERMUTATION_H_
#define ESPALIER_IO_INTERNAL_PERMUTATION_H_

#include <cstdint>
#include <vector>

#include "espalier/runtime/rng.h"

namespace espalier::internal {

// A drawn order of 0 .. n-1 whose elements can be had one by one. Up to
// kTableSize elements it is RandomPermutation; above, a Feistel network of
// eight rounds over the next even number of bits, applied again while its value
// is outside (Black and Rogaway, "Ciphers with arbitrary finite domains",
// 2002): no memory, and still every number once.
class Permutation {
 public:
  static constexpr int64_t kTableSize = int64_t{1} << 20;

  Permutation(const Rng& rng, int64_t n);

  int64_t size() const { return n_; }
  // 0 <= i < size().
  int64_t At(int64_t i) const;

 private:
  uint64_t Encrypt(uint64_t value) const;

  Rng rng_;
  int64_t n_;
  int half_bits_ = 0;
  std::vector<int64_t> table_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_PERMUTATION_H_
