#ifndef ESPALIER_OPS_ADAMW8BIT_ADAMW8BIT_H_
#define ESPALIER_OPS_ADAMW8BIT_ADAMW8BIT_H_

#include "espalier/ops/adamw/adamw.h"
#include "espalier/runtime/tensor.h"

namespace espalier {

// Moments of AdamW in one byte an element, with one f32 scale for each block
// of kBlock consecutive elements (row-major): 2.03 bytes a parameter in place
// of 8. The idea is that of arXiv:2110.02861; the code is our own, computed
// and not looked up:
//   first moment   code c in [1, 255]: m = scale * sign(s) s^4,
//                  s = (c - 128) / 127
//   second moment  code c in [0, 255]: v = scale * (c / 255)^8
// where scale is the block's largest |m| or v: 4e-9 and 6e-20 of it are still
// told from 0, and values of a hundredth of it are off by 5 % at most. Codes
// are rounded to the nearest; a v that is not 0 never gets code 0. A v that
// falls by less than half a code a step, next to one that does not fall, keeps
// its code; steps are then smaller than those of AdamW.
struct AdamW8BitMoments {
  static constexpr int64_t kBlock = 256;

  Tensor m_codes, v_codes;    // [n] u8
  Tensor m_scales, v_scales;  // [ceil(n / kBlock)] f32

  // All moments 0, for a parameter of n elements.
  static AdamW8BitMoments Zeros(Device& device, int64_t n);
};

// One AdamW step (ops/adamw/adamw.h) on decoded moments, which are encoded
// again afterwards; the step itself uses them before that rounding.
//   parameter, gradient: same shape, f32, contiguous
// Fails: INTERNAL on shape or dtype mismatch.
void AdamW8Bit(const Tensor& parameter, const Tensor& gradient,
               const AdamW8BitMoments& moments, const AdamWUpdate& update);

}  // namespace espalier

#endif  // ESPALIER_OPS_ADAMW8BIT_ADAMW8BIT_H_
