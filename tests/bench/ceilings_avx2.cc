#include <immintrin.h>

#include "espalier/tests/bench/internal/loops.h"

namespace espalier::bench {

float FmaAvx2(int64_t rounds) {
  __m256 chain[kChains];
  const __m256 scale = _mm256_set1_ps(0.999f);
  const __m256 shift = _mm256_set1_ps(0.001f);
  for (__m256& c : chain) c = shift;
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int k = 0; k < kChains; ++k) {
      chain[k] = _mm256_fmadd_ps(chain[k], scale, shift);
    }
  }
  __m256 sum = chain[0];
  for (int k = 1; k < kChains; ++k) sum = _mm256_add_ps(sum, chain[k]);
  return _mm256_cvtss_f32(sum);
}

int64_t ReadAvx2(const void* from, int64_t bytes) {
  const __m256i* const p = static_cast<const __m256i*>(from);
  __m256i sum[8] = {};
  for (int64_t i = 0; i < bytes / 32; i += 8) {
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      sum[k] = _mm256_xor_si256(sum[k], _mm256_load_si256(p + i + k));
    }
  }
  for (int k = 1; k < 8; ++k) sum[0] = _mm256_xor_si256(sum[0], sum[k]);
  return _mm256_extract_epi64(sum[0], 0);
}

void CopyAvx2(void* to, const void* from, int64_t bytes) {
  const __m256i* const p = static_cast<const __m256i*>(from);
  __m256i* const q = static_cast<__m256i*>(to);
  for (int64_t i = 0; i < bytes / 32; i += 4) {
    const __m256i a = _mm256_load_si256(p + i);
    const __m256i b = _mm256_load_si256(p + i + 1);
    const __m256i c = _mm256_load_si256(p + i + 2);
    const __m256i d = _mm256_load_si256(p + i + 3);
    _mm256_store_si256(q + i, a);
    _mm256_store_si256(q + i + 1, b);
    _mm256_store_si256(q + i + 2, c);
    _mm256_store_si256(q + i + 3, d);
  }
}

void StreamAvx2(void* to, const void* from, int64_t bytes) {
  const __m256i* const p = static_cast<const __m256i*>(from);
  __m256i* const q = static_cast<__m256i*>(to);
  for (int64_t i = 0; i < bytes / 32; i += 4) {
    const __m256i a = _mm256_load_si256(p + i);
    const __m256i b = _mm256_load_si256(p + i + 1);
    const __m256i c = _mm256_load_si256(p + i + 2);
    const __m256i d = _mm256_load_si256(p + i + 3);
    _mm256_stream_si256(q + i, a);
    _mm256_stream_si256(q + i + 1, b);
    _mm256_stream_si256(q + i + 2, c);
    _mm256_stream_si256(q + i + 3, d);
  }
  _mm_sfence();
}

}  // namespace espalier::bench
