// What the two AVX-512 translation units' Simd have in common. Included inside
// their anonymous namespaces.

#include "espalier/ops/gemm/words_avx512-inl.h"

struct Avx512 {
  using Vec = __m512;
  static constexpr int kWidth = 16;
  static Vec Zero() { return _mm512_setzero_ps(); }
  static Vec Load(const uint32_t* p) { return _mm512_loadu_ps(p); }
  static Vec Broadcast(const uint32_t* p) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*p)));
  }
  static Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  static Vec LoadF32(const float* p) { return _mm512_loadu_ps(p); }
  static void StoreF32(float* p, Vec v) { _mm512_storeu_ps(p, v); }
  static Vec Set(float x) { return _mm512_set1_ps(x); }
  static Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
  static Vec LoadBf16(const uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))),
        16));
  }
  // Not by vcvtneps2bf16, which flushes subnormals: edges do not.
  static void StoreBf16(uint16_t* p, Vec v) {
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(p),
        _mm512_cvtepi32_epi16(_mm512_srli_epi32(RoundToBf16(v), 16)));
  }
};
