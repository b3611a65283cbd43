#include <arm_neon.h>

#include "espalier/tests/bench/internal/loops.h"

namespace espalier::bench {

float FmaNeon(int64_t rounds) {
  float32x4_t chain[kChains];
  const float32x4_t scale = vdupq_n_f32(0.999f);
  const float32x4_t shift = vdupq_n_f32(0.001f);
  for (float32x4_t& c : chain) c = shift;
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int k = 0; k < kChains; ++k) {
      chain[k] = vfmaq_f32(shift, chain[k], scale);
    }
  }
  float32x4_t sum = chain[0];
  for (int k = 1; k < kChains; ++k) sum = vaddq_f32(sum, chain[k]);
  return vaddvq_f32(sum);
}

int64_t ReadNeon(const void* from, int64_t bytes) {
  const int64_t* const p = static_cast<const int64_t*>(from);
  int64x2_t sum[8];
  for (int64x2_t& s : sum) s = vdupq_n_s64(0);
  for (int64_t i = 0; i < bytes / 8; i += 16) {
#pragma GCC unroll 8
    for (int64_t k = 0; k < 8; ++k) {
      sum[k] = veorq_s64(sum[k], vld1q_s64(p + i + 2 * k));
    }
  }
  for (int k = 1; k < 8; ++k) sum[0] = veorq_s64(sum[0], sum[k]);
  return vgetq_lane_s64(sum[0], 0);
}

void CopyNeon(void* to, const void* from, int64_t bytes) {
  const int64_t* const p = static_cast<const int64_t*>(from);
  int64_t* const q = static_cast<int64_t*>(to);
  for (int64_t i = 0; i < bytes / 8; i += 4) {
    const int64x2_t a = vld1q_s64(p + i);
    const int64x2_t b = vld1q_s64(p + i + 2);
    vst1q_s64(q + i, a);
    vst1q_s64(q + i + 2, b);
  }
}

}  // namespace espalier::bench
