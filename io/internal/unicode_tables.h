#ifndef ESPALIER_IO_INTERNAL_UNICODE_TABLES_H_
#define ESPALIER_IO_INTERNAL_UNICODE_TABLES_H_

#include <cstdint>

namespace espalier::internal {

// One step of canonical decomposition; second is 0 for a single character.
struct Decomposition {
  uint32_t code;
  uint32_t first;
  uint32_t second;
};
extern const Decomposition kDecompositions[];  // code ascending
extern const int kNumDecompositions;

// Indices of kDecompositions that compose, (first, second) ascending.
extern const uint16_t kCompositions[];
extern const int kNumCompositions;

// Characters of a canonical combining class other than 0, ascending.
struct CombiningClass {
  uint32_t first;
  uint32_t last;
  uint8_t combining_class;
};
extern const CombiningClass kCombiningClasses[];
extern const int kNumCombiningClasses;

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_UNICODE_TABLES_H_
