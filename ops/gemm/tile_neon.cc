#include <arm_neon.h>

#include <cstdint>

#include "espalier/ops/gemm/internal/finish.h"
#include "espalier/ops/gemm/internal/tiles.h"

namespace espalier::gemm {
namespace {

struct Simd {
  using Vec = float32x4_t;
  static constexpr int kWidth = 4;
  static Vec Zero() { return vdupq_n_f32(0); }
  static Vec Load(const uint32_t* p) {
    return vreinterpretq_f32_u32(vld1q_u32(p));
  }
  static Vec Broadcast(const uint32_t* p) {
    return vreinterpretq_f32_u32(vld1q_dup_u32(p));
  }
  static Vec Dot(Vec acc, Vec a, Vec b) { return vfmaq_f32(acc, a, b); }
  static Vec LoadF32(const float* p) { return vld1q_f32(p); }
  static void StoreF32(float* p, Vec v) { vst1q_f32(p, v); }
  static Vec Add(Vec a, Vec b) { return vaddq_f32(a, b); }
};

#include "espalier/ops/gemm/internal/pack-inl.h"
#include "espalier/ops/gemm/internal/run-inl.h"
#include "espalier/ops/gemm/internal/tile6x16-inl.h"

}  // namespace

const Tile kTileNeonF32 = {Isa::kNeon, Compute::kF32, 1,        1,   kPitch, 1,
                           {0, 6},     PackAF32,      PackBF32, Run, nullptr};
const Tile kTileNeonBf16 = {
    Isa::kNeon, Compute::kBF16, 2,         2,   kPitch, 1,
    {0, 6},     PackABf16,      PackBBf16, Run, nullptr};

}  // namespace espalier::gemm
