#include <immintrin.h>

#include <cstdint>

#include "espalier/ops/gemm/internal/finish.h"
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
