#include <immintrin.h>

#include "espalier/tests/bench/internal/loops.h"

namespace espalier::bench {

float FmaAvx512(int64_t rounds) {
  __m512 chain[kChains];
  const __m512 scale = _mm512_set1_ps(0.999f);
  const __m512 shift = _mm512_set1_ps(0.001f);
  for (__m512& c : chain) c = shift;
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int k = 0; k < kChains; ++k) {
      chain[k] = _mm512_fmadd_ps(chain[k], scale, shift);
    }
  }
  __m512 sum = chain[0];
  for (int k = 1; k < kChains; ++k) sum = _mm512_add_ps(sum, chain[k]);
  return _mm512_cvtss_f32(sum);
}

}  // namespace espalier::bench
