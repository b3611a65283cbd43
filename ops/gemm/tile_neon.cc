#include <arm_neon.h>

#include <cstdint>

#include "espalier/ops/gemm/finish.h"
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
  static Vec Mul(Vec a, Vec b) { return vmulq_f32(a, b); }
  static Vec Set(float x) { return vdupq_n_f32(x); }
  static Vec LoadBf16(const uint16_t* p) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vld1_u16(p)), 16));
  }
  static void StoreBf16(uint16_t* p, Vec v) {
    const uint32x4_t x = vreinterpretq_u32_f32(v);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(x, 16), vdupq_n_u32(1));
    const uint32x4_t rounded =
        vaddq_u32(x, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint32x4_t quiet = vorrq_u32(x, vdupq_n_u32(0x400000));
    vst1_u16(p, vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), rounded, quiet), 16));
  }
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
