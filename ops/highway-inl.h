// Loads and stores that widen bf16 to f32 lanes and round back, to nearest
// even, once. The N forms touch `count` elements at most (count >= 1) and read
// zeros beyond. And what Highway does unlike on x86 and Arm.
// Included once per instruction set, by ops/highway.h.

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
  const hn::Rebind<uint32_t, D> d32;
  const auto half = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, half)));
}

template <class D>
HWY_INLINE void StoreF32(D d, hn::Vec<D> v, float* p) {
  hn::StoreU(v, d, p);
}

// The upper halves of f32 lanes after rounding.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> RoundToBF16(D, hn::Vec<D> v) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const hn::Rebind<int32_t, D> i32;
  const auto word = hn::BitCast(d32, v);
  const auto one = hn::Set(d32, 1u);
  const auto odd = hn::And(hn::ShiftRight<16>(word), one);
  const auto rounded =
      hn::ShiftRight<16>(hn::Add(word, hn::Add(odd, hn::Set(d32, 0x7fffu))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(word), hn::Set(d32, 0x40u));
  const auto is_nan = hn::RebindMask(d32, hn::Ne(v, v));
  const auto bits = hn::IfThenElse(is_nan, quiet, rounded);
  return hn::DemoteTo(d16, hn::BitCast(i32, bits));
}

template <class D>
HWY_INLINE void StoreF32(D d, hn::Vec<D> v, BFloat16* p) {
  const hn::Rebind<uint16_t, D> d16;
  hn::StoreU(RoundToBF16(d, v), d16, reinterpret_cast<uint16_t*>(p));
}

// Stores past the caches. p is aligned to the bytes of the vector; the writer
// calls hwy::FlushStream() before others read.
template <class D>
HWY_INLINE void StreamF32(D d, hn::Vec<D> v, float* p) {
  hn::Stream(v, d, p);
}

template <class D>
HWY_INLINE void StreamF32(D d, hn::Vec<D> v, BFloat16* p) {
  const hn::Rebind<uint16_t, D> d16;
  hn::Stream(RoundToBF16(d, v), d16, reinterpret_cast<uint16_t*>(p));
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
HWY_INLINE void StoreF32N(D d, hn::Vec<D> v, T* p, int64_t count) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (HWY_LIKELY(count >= lanes)) {
    StoreF32(d, v, p);
    return;
  }
  HWY_ALIGN T buffer[hn::MaxLanes(d)];
  StoreF32(d, v, buffer);
  for (int64_t i = 0; i < count; ++i) p[i] = buffer[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#endif  // ESPALIER_OPS_HIGHWAY_INL_H_
