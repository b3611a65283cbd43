#include <immintrin.h>

#include <cstdint>

#include "espalier/ops/gemm/internal/finish.h"
#include "espalier/ops/gemm/internal/tiles.h"

namespace espalier::gemm {
namespace {

struct Simd {
  using Vec = __m512;
  static constexpr int kWidth = 16;
  static Vec Zero() { return _mm512_setzero_ps(); }
  static Vec Load(const uint32_t* p) { return _mm512_loadu_ps(p); }
  static Vec Broadcast(const uint32_t* p) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*p)));
  }
  static Vec Dot(Vec acc, Vec a, Vec b) { return _mm512_fmadd_ps(a, b, acc); }
  static Vec LoadF32(const float* p) { return _mm512_loadu_ps(p); }
  static void StoreF32(float* p, Vec v) { _mm512_storeu_ps(p, v); }
  static Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
};

#include "espalier/ops/gemm/internal/run-inl.h"
#include "espalier/ops/gemm/internal/tile_avx512-inl.h"

// bf16 computed in f32, k in the order of vdpbf16ps.
struct Bf16SwapSource {
  using Element = uint16_t;
  static constexpr bool kInPlace = false;
  static constexpr int64_t kStep = 1;
  static int64_t Offset(int64_t word) { return word ^ 1; }
  static int64_t Words(int64_t num_k) { return (num_k + 1) / 2 * 2; }
  static __m512i Row(const Element* row, int64_t left) {
    return SwapPairs(Bf16Source::Row(row, left));
  }
  static __m512i Column(const Element* at, int64_t, int64_t left,
                        __mmask16 mask) {
    if (left <= 0) return _mm512_setzero_si512();
    return Bf16Source::Column(at, 0, left, mask);
  }
};

// f32 rounded to bf16, kept as f32 words, same order.
struct F32RoundSwapSource {
  using Element = uint32_t;
  static constexpr bool kInPlace = false;
  static constexpr int64_t kStep = 1;
  static int64_t Offset(int64_t word) { return word ^ 1; }
  static int64_t Words(int64_t num_k) { return (num_k + 1) / 2 * 2; }
  static __m512i Round(__m512i x) {
    const __m512i odd =
        _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(x, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512 value = _mm512_castsi512_ps(x);
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const __m512i kept =
        _mm512_mask_or_epi32(rounded, nan, x, _mm512_set1_epi32(0x400000));
    return _mm512_and_si512(kept,
                            _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
  }
  static __m512i Row(const Element* row, int64_t left) {
    return SwapPairs(Round(F32Source::Row(row, left)));
  }
  static __m512i Column(const Element* at, int64_t, int64_t left,
                        __mmask16 mask) {
    if (left <= 0) return _mm512_setzero_si512();
    return Round(F32Source::Column(at, 0, left, mask));
  }
};

void PackF32(const PackArgs& args) {
  if (args.operand.dtype == kBF16) return PackWith<Bf16Source>(args);
  PackWith<F32Source>(args);
}

void PackBf16(const PackArgs& args) {
  if (args.operand.dtype == kBF16) return PackWith<Bf16SwapSource>(args);
  PackWith<F32RoundSwapSource>(args);
}

void RunUnpackedF32(const TileArgs& args, const Operand& b, int64_t lane,
                    int64_t k, int64_t num_k) {
  if (b.dtype == kBF16) {
    return RunUnpackedWith<Bf16Source>(args, b, lane, k, num_k);
  }
  RunUnpackedWith<F32Source>(args, b, lane, k, num_k);
}

void RunUnpackedBf16(const TileArgs& args, const Operand& b, int64_t lane,
                     int64_t k, int64_t num_k) {
  if (b.dtype == kBF16) {
    return RunUnpackedWith<Bf16SwapSource>(args, b, lane, k, num_k);
  }
  RunUnpackedWith<F32RoundSwapSource>(args, b, lane, k, num_k);
}

}  // namespace

const Tile kTileAvx512F32 = {
    Isa::kAvx512,      Compute::kF32, 1,       1,   kPitch,        4,
    {0, 14, 14, 8, 6}, PackF32,       PackF32, Run, RunUnpackedF32};
const Tile kTileAvx512Bf16Widened = {
    Isa::kAvx512,      Compute::kBF16, 2,        2,   kPitch,         4,
    {0, 14, 14, 8, 6}, PackBf16,       PackBf16, Run, RunUnpackedBf16};

}  // namespace espalier::gemm
