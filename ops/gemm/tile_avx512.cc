#include <immintrin.h>

#include <cstdint>

#include "espalier/ops/gemm/finish.h"
#include "espalier/ops/gemm/internal/tiles.h"

namespace espalier::gemm {
namespace {

#include "espalier/ops/gemm/internal/simd_avx512-inl.h"

struct Simd : Avx512 {
  static Vec Dot(Vec acc, Vec a, Vec b) { return _mm512_fmadd_ps(a, b, acc); }
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
    return RoundToBf16(_mm512_castsi512_ps(x));
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
