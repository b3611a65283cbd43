// Elementary functions on f32 lanes. Errors are against f64 over all f32 inputs
// sampled by ops/math_test.cc. All but the Brief forms are the same bits on
// every instruction set. The Brief forms are for results that are stored as
// bf16: their error is below a twelfth of that rounding. Included once per
// instruction set, after ops/highway.h.

#if defined(ESPALIER_OPS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ESPALIER_OPS_MATH_INL_H_
#undef ESPALIER_OPS_MATH_INL_H_
#else
#define ESPALIER_OPS_MATH_INL_H_
#endif

#include "hwy/highway.h"

#include "espalier/ops/highway-inl.h"

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// v * 2^n for whole n in [-150, 129], rounded once.
template <class D>
HWY_INLINE hn::Vec<D> ScaleByPowerOf2(D d, hn::Vec<D> v, hn::Vec<D> n) {
#if HWY_TARGET == HWY_AVX3
  (void)d;
  return hn::Vec<D>{_mm512_scalef_ps(v.raw, n.raw)};
#else
  // In two steps, each with a normal factor; only the last can round.
  const hn::RebindToSigned<D> di;
  const auto whole = hn::NearestInt(n);
  const auto half = hn::ShiftRight<1>(whole);
  const auto bias = hn::Set(di, 127);
  const auto first = hn::ShiftLeft<23>(hn::Add(half, bias));
  const auto second = hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias));
  return hn::Mul(hn::Mul(v, hn::BitCast(d, first)), hn::BitCast(d, second));
#endif
}

// e^x. Relative error at most 9e-8 where the result is normal; correctly
// gradual below, 0 from -104 down, infinity from 88.73 up, NaN for NaN.
// Exp(0) is 1 exactly.
// x = n ln2 + r, |r| <= ln2/2; e^r by a polynomial of degree 6 fitted for least
// relative error (3.1e-9) with its first two coefficients held at 1.
template <class D>
HWY_INLINE hn::Vec<D> Exp(D d, hn::Vec<D> x) {
  x = AtMost(d, 89.5f, AtLeast(d, -104.5f, x));
  // Adding 1.5 * 2^23 rounds to the nearest whole number.
  const auto magic = hn::Set(d, 12582912.0f);
  const auto n = hn::Sub(hn::MulAdd(x, hn::Set(d, 1.44269504f), magic), magic);
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  auto p = hn::Set(d, 0.001381459878757596f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.008368716575205326f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.04166838899254799f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.1666652113199234f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.4999999403953552f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  return ScaleByPowerOf2(d, p, n);
}

// 1 / v for v in [1, infinity], relative error at most 6.2e-5. Results of f32
// divide: the divider works beside the multipliers, which a Newton step would
// keep longer (AVX-512 on Zen 4, measured).
template <class D>
HWY_INLINE hn::Vec<D> ReciprocalBrief(D d, hn::Vec<D> v) {
#if HWY_TARGET == HWY_AVX3
  (void)d;
  return hn::Vec<D>{_mm512_rcp14_ps(v.raw)};
#else
  return hn::Div(hn::Set(d, 1.0f), v);
#endif
}

// 2^y. Relative error at most 7.6e-5 where the result is normal; gradual below,
// infinity from 128 up, NaN for NaN. 2^f, f = y - floor(y), by a polynomial of
// degree 3 fitted for least relative error.
template <class D>
HWY_INLINE hn::Vec<D> Exp2Brief(D d, hn::Vec<D> y) {
#if HWY_TARGET == HWY_AVX3
  const hn::Vec<D> f{
      _mm512_reduce_ps(y.raw, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
#else
  y = AtMost(d, 129.0f, AtLeast(d, -151.0f, y));
  const auto n = hn::Floor(y);
  const auto f = hn::Sub(y, n);
#endif
  auto p = hn::Set(d, 0.07802452147006989f);
  p = hn::MulAdd(p, f, hn::Set(d, 0.22606715559959412f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.6958335638046265f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.9999251961708069f));
#if HWY_TARGET == HWY_AVX3
  return hn::Vec<D>{_mm512_scalef_ps(p.raw, y.raw)};
#else
  return ScaleByPowerOf2(d, p, n);
#endif
}

// 1 / (1 + e^-x). Relative error at most 2.5e-7 where the result is normal;
// 0 below -88.73.
template <class D>
HWY_INLINE hn::Vec<D> Sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, Exp(d, hn::Neg(x))));
}

// Relative error at most 1.5e-4.
template <class D>
HWY_INLINE hn::Vec<D> SigmoidBrief(D d, hn::Vec<D> x) {
  const auto e = Exp2Brief(d, hn::Mul(x, hn::Set(d, -1.44269504f)));
  return ReciprocalBrief(d, hn::Add(hn::Set(d, 1.0f), e));
}

// Sigmoid for results of T.
template <typename T, class D>
HWY_INLINE hn::Vec<D> SigmoidFor(D d, hn::Vec<D> x) {
  if constexpr (sizeof(T) == 2) {
    return SigmoidBrief(d, x);
  } else {
    return Sigmoid(d, x);
  }
}

// Standard normal density and its integral up to x. Absolute error at most
// 2.1e-7 (integral) and 5e-8 (density).
// For x <= 0 the integral is e^(-x^2/2) P(1 / (1 + 0.35 |x|)), P a polynomial
// fitted for least relative error (6.2e-8) up to |x| = 15; 1 less that of -x
// above.
template <class D>
HWY_INLINE hn::Vec<D> NormalIntegral(D d, hn::Vec<D> x, hn::Vec<D>& density) {
  const auto one = hn::Set(d, 1.0f);
  const auto t = hn::Div(one, hn::MulAdd(hn::Abs(x), hn::Set(d, 0.35f), one));
  const auto e = Exp(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f)));
  density = hn::Mul(e, hn::Set(d, 0.3989422804f));
  auto p = hn::Set(d, -0.029163789004087448f);
  p = hn::MulAdd(p, t, hn::Set(d, 0.1440601497888565f));
  p = hn::MulAdd(p, t, hn::Set(d, -0.2559005618095398f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.15939150750637054f));
  p = hn::MulAdd(p, t, hn::Set(d, -0.023262914270162582f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.10557443648576736f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.11981558799743652f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.13986432552337646f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.13962125778198242f));
  const auto tail = hn::Mul(e, hn::Mul(p, t));
  return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Sub(one, tail), tail);
}

// The same, relative error of the integral at most 3e-4 down to -13. t = 1 / (1
// + 0.4 |x|) and P of degree 5, error 8.7e-5.
template <class D>
HWY_INLINE hn::Vec<D> NormalIntegralBrief(D d, hn::Vec<D> x,
                                          hn::Vec<D>& density) {
  const auto one = hn::Set(d, 1.0f);
  const auto t =
      ReciprocalBrief(d, hn::MulAdd(hn::Abs(x), hn::Set(d, 0.4f), one));
  const auto e = Exp2Brief(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.72134752f)));
  density = hn::Mul(e, hn::Set(d, 0.3989422804f));
  auto p = hn::Set(d, -0.08327828347682953f);
  p = hn::MulAdd(p, t, hn::Set(d, 0.1404079794883728f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.12370462715625763f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.15942372381687164f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.1596984714269638f));
  const auto tail = hn::Mul(e, hn::Mul(p, t));
  return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Sub(one, tail), tail);
}

// NormalIntegral for results of T.
template <typename T, class D>
HWY_INLINE hn::Vec<D> NormalIntegralFor(D d, hn::Vec<D> x,
                                        hn::Vec<D>& density) {
  if constexpr (sizeof(T) == 2) {
    return NormalIntegralBrief(d, x, density);
  } else {
    return NormalIntegral(d, x, density);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#endif  // ESPALIER_OPS_MATH_INL_H_
