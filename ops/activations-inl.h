// Activations and their derivatives on f32 lanes (ops/activations.h).
// Included once per instruction set, after ops/highway.h.

#if defined(ESPALIER_OPS_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ESPALIER_OPS_ACTIVATIONS_INL_H_
#undef ESPALIER_OPS_ACTIVATIONS_INL_H_
#else
#define ESPALIER_OPS_ACTIVATIONS_INL_H_
#endif

#include "hwy/highway.h"

#include "espalier/ops/activations.h"
#include "espalier/ops/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {

// The value at x; `slope` is the derivative there. As exact as results of T
// need.
template <Activation kActivation, typename T, class D>
HWY_INLINE hn::Vec<D> Activate(D d, hn::Vec<D> x, hn::Vec<D>& slope) {
  if constexpr (kActivation == Activation::kGelu) {
    hn::Vec<D> density = x;
    const auto integral = NormalIntegralFor<T>(d, x, density);
    slope = hn::MulAdd(x, density, integral);
    return hn::Mul(x, integral);
  } else {
    const auto one = hn::Set(d, 1.0f);
    if constexpr (kActivation == Activation::kSilu) {
      const auto s = SigmoidFor<T>(d, x);
      const auto y = hn::Mul(x, s);
      slope = hn::MulAdd(y, hn::Sub(one, s), s);
      return y;
    } else {
      constexpr auto kScale = static_cast<float>(kGeluTanhScale);
      constexpr auto kCubic =
          static_cast<float>(kGeluTanhScale * kGeluTanhCubic);
      const auto square = hn::Mul(x, x);
      const auto s =
          SigmoidFor<T>(d, hn::Mul(x, hn::MulAdd(square, hn::Set(d, kCubic),
                                                 hn::Set(d, kScale))));
      const auto du =
          hn::MulAdd(square, hn::Set(d, 3 * kCubic), hn::Set(d, kScale));
      const auto y = hn::Mul(x, s);
      slope = hn::MulAdd(hn::Mul(y, hn::Sub(one, s)), du, s);
      return y;
    }
  }
}

// Calls function.operator()<kActivation>() for the one that is asked for.
template <class Function>
void WithActivation(Activation activation, const Function& function) {
  switch (activation) {
    case Activation::kSilu:
      function.template operator()<Activation::kSilu>();
      return;
    case Activation::kGelu:
      function.template operator()<Activation::kGelu>();
      return;
    case Activation::kGeluTanh:
      function.template operator()<Activation::kGeluTanh>();
      return;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#endif  // ESPALIER_OPS_ACTIVATIONS_INL_H_
