#include <immintrin.h>

#include <cstdint>

#include "espalier/ops/gemm/finish.h"
#include "espalier/ops/gemm/internal/tiles.h"

namespace espalier::gemm {
namespace {

struct Simd {
  using Vec = __m256;
  static constexpr int kWidth = 8;
  static Vec Zero() { return _mm256_setzero_ps(); }
  static Vec Load(const uint32_t* p) {
    return _mm256_load_ps(reinterpret_cast<const float*>(p));
  }
  static Vec Broadcast(const uint32_t* p) {
    return _mm256_broadcast_ss(reinterpret_cast<const float*>(p));
  }
  static Vec Dot(Vec acc, Vec a, Vec b) { return _mm256_fmadd_ps(a, b, acc); }
  static Vec LoadF32(const float* p) { return _mm256_loadu_ps(p); }
  static void StoreF32(float* p, Vec v) { _mm256_storeu_ps(p, v); }
  static Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
  static Vec Mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
  static Vec Set(float x) { return _mm256_set1_ps(x); }
  static Vec LoadBf16(const uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(
        _mm256_cvtepu16_epi32(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
        16));
  }
  static void StoreBf16(uint16_t* p, Vec v) {
    const __m256i x = _mm256_castps_si256(v);
    const __m256i odd =
        _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(x, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(x, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i high =
        _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm_packus_epi32(_mm256_castsi256_si128(high),
                                      _mm256_extracti128_si256(high, 1)));
  }
};

#include "espalier/ops/gemm/internal/pack-inl.h"
#include "espalier/ops/gemm/internal/run-inl.h"
#include "espalier/ops/gemm/internal/tile6x16-inl.h"

}  // namespace

const Tile kTileAvx2F32 = {Isa::kAvx2, Compute::kF32, 1,        1,   kPitch, 1,
                           {0, 6},     PackAF32,      PackBF32, Run, nullptr};
const Tile kTileAvx2Bf16 = {
    Isa::kAvx2, Compute::kBF16, 2,         2,   kPitch, 1,
    {0, 6},     PackABf16,      PackBBf16, Run, nullptr};

}  // namespace espalier::gemm
