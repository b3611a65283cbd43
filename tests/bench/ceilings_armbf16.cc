#include <arm_neon.h>

#include "espalier/tests/bench/internal/loops.h"

namespace espalier::bench {

float DotBf16Arm(int64_t rounds) {
  float32x4_t chain[kChains];
  const float32x4_t tiny = vdupq_n_f32(1e-6f);
  const bfloat16x4_t half = vcvt_bf16_f32(tiny);
  const bfloat16x8_t factor = vcombine_bf16(half, half);
  for (float32x4_t& c : chain) c = tiny;
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int k = 0; k < kChains; ++k) {
      chain[k] = vbfdotq_f32(chain[k], factor, factor);
    }
  }
  float32x4_t sum = chain[0];
  for (int k = 1; k < kChains; ++k) sum = vaddq_f32(sum, chain[k]);
  return vaddvq_f32(sum);
}

}  // namespace espalier::bench
