// Loads and stores that widen bf16 to f32 lanes and round back, to nearest
// even, once. The N forms touch `count` elements at most (count >= 1) and read
// zeros beyond. And what Highway does unlike on x86 and Arm.
// Included once per instruction set, by ops/highway.h.
//
// Stores take `native`: whether the CPU has AVX512_BF16 (exec.isa). They then
// round with vcvtneps2bf16, which makes zeros of subnormal numbers; otherwise
// with integers, exactly. Both keep NaN, quiet and truncated.

#if defined(ESPALIER_OPS_HIGHWAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ESPALIER_OPS_HIGHWAY_INL_H_
#undef ESPALIER_OPS_HIGHWAY_INL_H_
#else
#define ESPALIER_OPS_HIGHWAY_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

#include "espalier/runtime/float16.h"

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// v, but at least (at most) the bound; NaN stays NaN. Max and Min alone keep it
// on x86 if the bound is the first operand, and never on Arm.
template <class D>
HWY_INLINE hn::Vec<D> AtLeast(D d, float bound, hn::Vec<D> v) {
  const auto least = hn::Set(d, bound);
#if HWY_ARCH_ARM
  return hn::IfThenElse(hn::Lt(v, least), least, v);
#else
  return hn::Max(least, v);
#endif
}

template <class D>
HWY_INLINE hn::Vec<D> AtMost(D d, float bound, hn::Vec<D> v) {
  const auto most = hn::Set(d, bound);
#if HWY_ARCH_ARM
  return hn::IfThenElse(hn::Gt(v, most), most, v);
#else
  return hn::Min(most, v);
#endif
}

template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const float* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const BFloat16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const auto half = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p));
#if HWY_TARGET == HWY_AVX3
  if constexpr (hn::MaxLanes(d) == 16) {
    // One shuffle that writes the upper halves alone.
    const __m512i to_upper =
        _mm512_set_epi16(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9,
                         8, 8, 7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    return hn::Vec<D>{_mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(
        0xaaaaaaaa, to_upper, _mm512_castsi256_si512(half.raw)))};
  }
#endif
  const hn::Rebind<uint32_t, D> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, half)));
}

template <class D>
HWY_INLINE void StoreF32(D d, hn::Vec<D> v, float* p, bool /*native*/ = false) {
  hn::StoreU(v, d, p);
}

// f32 lanes as words whose upper halves are rounded; the lower are undefined.
template <class D32, class V>
HWY_INLINE hn::Vec<D32> RoundedWord(D32 d32, V v) {
  const auto word = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(word), hn::Set(d32, 1u));
  const auto rounded = hn::Add(hn::Add(word, hn::Set(d32, 0x7fffu)), odd);
  const auto quiet = hn::Or(word, hn::Set(d32, 0x400000u));
  return hn::IfThenElse(hn::RebindMask(d32, hn::Ne(v, v)), quiet, rounded);
}

// The upper halves of f32 lanes after rounding.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> RoundToBF16(D d, hn::Vec<D> v,
                                                        bool native = false) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const hn::Rebind<int32_t, D> i32;
#if HWY_TARGET == HWY_AVX3
  if constexpr (hn::MaxLanes(d) == 16) {
    if (native) {
      // An intrinsic would need a target of its own.
      __m256i half;
      asm("vcvtneps2bf16 %1, %0" : "=v"(half) : "v"(v.raw));
      return hn::Vec<hn::Rebind<uint16_t, D>>{half};
    }
  }
#endif
  (void)d;
  (void)native;
  const auto bits = hn::ShiftRight<16>(RoundedWord(d32, v));
  return hn::DemoteTo(d16, hn::BitCast(i32, bits));
}

#if HWY_TARGET == HWY_AVX3
// Elements 2 i from `even`, 2 i + 1 from `odd`.
HWY_INLINE hn::Vec512<uint16_t> RoundPairToBF16(hn::Vec512<float> even,
                                                hn::Vec512<float> odd,
                                                bool native) {
  if (native) {
    // even in the lower half, odd in the upper.
    __m512i halves;
    asm("vcvtne2ps2bf16 %2, %1, %0"
        : "=v"(halves)
        : "v"(odd.raw), "v"(even.raw));
    const __m512i interleave = _mm512_set_epi16(
        31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
        6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return hn::Vec512<uint16_t>{_mm512_permutexvar_epi16(interleave, halves)};
  }
  const hn::ScalableTag<uint32_t> d32;
  const hn::ScalableTag<uint16_t> d16;
  const auto low = hn::ShiftRight<16>(RoundedWord(d32, even));
  const auto high = RoundedWord(d32, odd);
  return hn::BitCast(d16,
                     hn::Or(low, hn::And(high, hn::Set(d32, 0xffff0000u))));
}
#endif

template <class D>
HWY_INLINE void StoreF32(D d, hn::Vec<D> v, BFloat16* p, bool native = false) {
  const hn::Rebind<uint16_t, D> d16;
  hn::StoreU(RoundToBF16(d, v, native), d16, reinterpret_cast<uint16_t*>(p));
}

// Stores past the caches. p is aligned to the bytes of the vector; the writer
// calls hwy::FlushStream() before others read.
template <class D>
HWY_INLINE void StreamF32(D d, hn::Vec<D> v, float* p,
                          bool /*native*/ = false) {
  hn::Stream(v, d, p);
}

template <class D>
HWY_INLINE void StreamF32(D d, hn::Vec<D> v, BFloat16* p, bool native = false) {
  const hn::Rebind<uint16_t, D> d16;
  hn::Stream(RoundToBF16(d, v, native), d16, reinterpret_cast<uint16_t*>(p));
}

template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadF32N(D d, const T* p, int64_t count) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (HWY_LIKELY(count >= lanes)) return LoadF32(d, p);
  HWY_ALIGN T buffer[hn::MaxLanes(d)] = {};
  for (int64_t i = 0; i < count; ++i) buffer[i] = p[i];
  return LoadF32(d, buffer);
}

template <class D, typename T>
HWY_INLINE void StoreF32N(D d, hn::Vec<D> v, T* p, int64_t count,
                          bool native = false) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (HWY_LIKELY(count >= lanes)) {
    StoreF32(d, v, p, native);
    return;
  }
  HWY_ALIGN T buffer[hn::MaxLanes(d)];
  StoreF32(d, v, buffer, native);
  for (int64_t i = 0; i < count; ++i) p[i] = buffer[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#endif  // ESPALIER_OPS_HIGHWAY_INL_H_
