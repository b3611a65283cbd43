#include <immintrin.h>

#include <cstdint>

#include "espalier/ops/gemm/finish.h"
#include "espalier/ops/gemm/internal/tiles.h"

namespace espalier::gemm {
namespace {

#include "espalier/ops/gemm/internal/simd_avx512-inl.h"

struct Simd : Avx512 {
  static Vec Dot(Vec acc, Vec a, Vec b) {
    return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(a),
                            reinterpret_cast<__m512bh>(b));
  }
  // The instruction takes subnormals as zero; sums of vdpbf16ps are none.
  static __m512i Bf16Pair(Vec low, Vec high) {
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
  }
  static void StoreBf16Pair(uint16_t* p, Vec low, Vec high) {
    _mm512_storeu_si512(p, Bf16Pair(low, high));
  }
  static void StreamBf16Pair(uint16_t* p, Vec low, Vec high) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(p), Bf16Pair(low, high));
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

// Two 16-bit rows woven: lanes [0, 16) of the pairs, or [16, 32).
struct Weave {
  uint16_t index[2][32];
  constexpr Weave() : index() {
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 32; ++i) {
        index[half][i] =
            static_cast<uint16_t>(16 * half + i / 2 + (i % 2) * 32);
      }
    }
  }
};
alignas(64) constexpr Weave kWeave;

// Whole panels, two at a time, of bf16 with neighbouring lanes: whole lines are
// read and woven. Returns the lanes packed.
int64_t PackPairs(const PackArgs& args) {
  const Operand& operand = args.operand;
  const auto* data = static_cast<const uint16_t*>(operand.data) +
                     args.lane_begin + args.k_begin * operand.k_stride;
  const __m512i low = _mm512_load_si512(kWeave.index[0]);
  const __m512i high = _mm512_load_si512(kWeave.index[1]);
  const int64_t lanes = args.num_lanes / 32 * 32;
  // A visit to a row of memory uses two neighbouring lines.
  for (int64_t begin = 0; begin < lanes; begin += 64) {
    const int64_t end = lanes < begin + 64 ? lanes : begin + 64;
    for (int64_t k = 0; k < args.num_k; k += 2) {
      const uint16_t* row = data + k * operand.k_stride;
      for (int64_t lane = begin; lane < end; lane += 32) {
        const __m512i even = _mm512_loadu_si512(row + lane);
        const __m512i odd =
            k + 1 < args.num_k
                ? _mm512_loadu_si512(row + operand.k_stride + lane)
                : _mm512_setzero_si512();
        uint32_t* out =
            args.out + lane / kLanes * args.out_stride + k / 2 * kPitch;
        _mm512_storeu_si512(out, _mm512_permutex2var_epi16(even, low, odd));
        _mm512_storeu_si512(out + args.out_stride,
                            _mm512_permutex2var_epi16(even, high, odd));
      }
    }
  }
  return lanes;
}

void Pack(const PackArgs& args) {
  if (args.operand.dtype == kBF16 && args.operand.lane_stride == 1 &&
      args.operand.k_stride != 1 && args.panel_lanes == kLanes) {
    const int64_t done = PackPairs(args);
    if (done == args.num_lanes) return;
    PackArgs rest = args;
    rest.lane_begin += done;
    rest.num_lanes -= done;
    rest.out += done / kLanes * args.out_stride;
    return PackWith<Bf16PairSource>(rest);
  }
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

void Flush() { _mm_sfence(); }

}  // namespace

const Tile kTileAvx512Bf16 = {
    Isa::kAvx512Bf16,  Compute::kBF16, 2,    1,   kPitch,      4,
    {0, 14, 14, 8, 6}, Pack,           Pack, Run, RunUnpacked, Flush};

}  // namespace espalier::gemm
