#include <immintrin.h>

#include "espalier/tests/bench/internal/loops.h"

namespace espalier::bench {

float DotBf16Avx512(int64_t rounds) {
  __m512 chain[kChains];
  const __m512 tiny = _mm512_set1_ps(1e-6f);
  const __m512bh factor = _mm512_cvtne2ps_pbh(tiny, tiny);
  for (__m512& c : chain) c = tiny;
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int k = 0; k < kChains; ++k) {
      chain[k] = _mm512_dpbf16_ps(chain[k], factor, factor);
    }
  }
  __m512 sum = chain[0];
  for (int k = 1; k < kChains; ++k) sum = _mm512_add_ps(sum, chain[k]);
  return _mm512_cvtss_f32(sum);
}

}  // namespace espalier::bench
