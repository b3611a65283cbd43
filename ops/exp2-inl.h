// 2^y for the kernels of softmax. Included once per instruction set, after
// ops/highway.h.

#if defined(ESPALIER_OPS_EXP2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ESPALIER_OPS_EXP2_INL_H_
#undef ESPALIER_OPS_EXP2_INL_H_
#else
#define ESPALIER_OPS_EXP2_INL_H_
#endif

#include "hwy/highway.h"

#include "espalier/ops/highway-inl.h"

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// 2^y for y <= 0, the same bits on every instruction set. Relative error at
// most 1.8e-7; 2^-126 below y = -126; NaN for NaN; Exp2(0) is 1 exactly.
// 2^r, |r| <= 1/2, by a polynomial of degree 5 fitted for least relative error
// (1.1e-7) with its first coefficient held at 1.
template <class D>
HWY_INLINE hn::Vec<D> Exp2(D d, hn::Vec<D> y) {
  y = AtLeast(d, -126.0f, y);
  const auto n = hn::Round(y);
  const auto r = hn::Sub(y, n);
  auto p = hn::Set(d, 0.001326472731307149f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.009671512991189957f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.05550733581185341f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.24022242426872253f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.6931470036506653f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
#if HWY_TARGET == HWY_AVX3
  return hn::Vec<D>{_mm512_scalef_ps(p.raw, n.raw)};
#else
  const hn::RebindToSigned<D> di;
  const auto exponent =
      hn::ShiftLeft<23>(hn::Add(hn::NearestInt(n), hn::Set(di, 127)));
  return hn::Mul(p, hn::BitCast(d, exponent));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#endif  // ESPALIER_OPS_EXP2_INL_H_
