// What the two AVX-512 translation units' Simd have in common. Included inside
// their anonymous namespaces.

// Rounds to bf16, nearest-even, kept as f32 words.
inline __m512i RoundToBf16(__m512 value) {
  const __m512i x = _mm512_castps_si512(value);
  const __m512i odd =
      _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_add_epi32(x, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const __m512i kept =
      _mm512_mask_or_epi32(rounded, nan, x, _mm512_set1_epi32(0x400000));
  return _mm512_and_si512(kept,
                          _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
}

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
