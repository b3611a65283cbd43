#include <immintrin.h>

#include <cstdint>

#include "espalier/ops/gemm/internal/finish.h"
#include "espalier/ops/gemm/internal/tiles.h"

namespace espalier::gemm {
namespace {

#include "espalier/ops/gemm/internal/simd_avx512-inl.h"

struct Simd : Avx512 {
  static Vec Dot(Vec acc, Vec a, Vec b) {
    return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(a),
                            reinterpret_cast<__m512bh>(b));
  }
  // The instruction takes subnormals as zero; StoreBf16 does not.
  static void StoreBf16Pair(uint16_t* p, Vec low, Vec high) {
    constexpr int kSubnormal = 0x20;
    const __mmask16 low_mask = _mm512_fpclass_ps_mask(low, kSubnormal);
    const __mmask16 high_mask = _mm512_fpclass_ps_mask(high, kSubnormal);
    if (__builtin_expect(_mm512_kortestz(low_mask, high_mask) != 0, 1)) {
      _mm512_storeu_si512(
          p, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
      return;
    }
    StoreBf16(p, low);
    StoreBf16(p + kWidth, high);
  }
};

#include "espalier/ops/gemm/internal/run-inl.h"
#include "espalier/ops/gemm/internal/tile_avx512-inl.h"

// A word is the pair (k, k + 1).
struct Bf16PairSource {
  using Element = uint16_t;
  static constexpr bool kInPlace = true;
  static constexpr int64_t kStep = 2;
  static int64_t Offset(int64_t word) { return 2 * word; }
  static int64_t Words(int64_t num_k) { return (num_k + 1) / 2; }
  static __m512i Row(const Element* row, int64_t left) {
    const __mmask32 mask =
        left >= 32 ? 0xffffffffu : static_cast<__mmask32>((1u << left) - 1u);
    return _mm512_maskz_loadu_epi16(mask, row);
  }
  static __m512i Column(const Element* at, int64_t k_stride, int64_t left,
                        __mmask16 mask) {
    const __m512i low =
        _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, at));
    if (left < 2) return low;
    return _mm512_or_si512(
        low, WidenBf16(_mm256_maskz_loadu_epi16(mask, at + k_stride)));
  }
};

struct F32PairSource {
  using Element = uint32_t;
  static constexpr bool kInPlace = false;
  static constexpr int64_t kStep = 2;
  static int64_t Offset(int64_t word) { return 2 * word; }
  static int64_t Words(int64_t num_k) { return (num_k + 1) / 2; }
  static __m256i Round(__m512i x) {
    return reinterpret_cast<__m256i>(
        _mm512_cvtneps_pbh(_mm512_castsi512_ps(x)));
  }
  static __m512i Row(const Element* row, int64_t left) {
    const __m512i low = F32Source::Row(row, left);
    const __m512i high = left > 16 ? F32Source::Row(row + 16, left - 16)
                                   : _mm512_setzero_si512();
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(
        _mm512_castsi512_ps(high), _mm512_castsi512_ps(low)));
  }
  static __m512i Column(const Element* at, int64_t k_stride, int64_t left,
                        __mmask16 mask) {
    const __m512i low =
        _mm512_cvtepu16_epi32(Round(_mm512_maskz_loadu_epi32(mask, at)));
    if (left < 2) return low;
    return _mm512_or_si512(
        low, WidenBf16(Round(_mm512_maskz_loadu_epi32(mask, at + k_stride))));
  }
};

void Pack(const PackArgs& args) {
  if (args.operand.dtype == kBF16) return PackWith<Bf16PairSource>(args);
  PackWith<F32PairSource>(args);
}

void RunUnpacked(const TileArgs& args, const Operand& b, int64_t lane,
                 int64_t k, int64_t num_k) {
  if (b.dtype == kBF16) {
    return RunUnpackedWith<Bf16PairSource>(args, b, lane, k, num_k);
  }
  RunUnpackedWith<F32PairSource>(args, b, lane, k, num_k);
}

}  // namespace

const Tile kTileAvx512Bf16 = {
    Isa::kAvx512Bf16,  Compute::kBF16, 2,    1,   kPitch,     4,
    {0, 14, 14, 8, 6}, Pack,           Pack, Run, RunUnpacked};

}  // namespace espalier::gemm
