#include "espalier/ops/linear_cross_entropy/internal/rows.h"
#include "espalier/ops/online_softmax/online_softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "espalier/ops/linear_cross_entropy/linear_cross_entropy_rows_cpu.cc"
// The first include sets up the second.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/exp2-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::linear_cross_entropy {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using espalier::HWY_NAMESPACE::Exp2;
using espalier::HWY_NAMESPACE::LoadF32;
using espalier::HWY_NAMESPACE::LoadF32N;
using espalier::HWY_NAMESPACE::StoreF32;
using espalier::HWY_NAMESPACE::StoreF32N;
using F = hn::ScalableTag<float>;

constexpr float kLog2E = static_cast<float>(online_softmax::kLog2E);

template <typename T>
void ProbabilityRowAs(const ProbabilityRowArgs& args) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, args.scale * kLog2E);
  const auto max = hn::Set(d, args.max);
  const auto factor = hn::Set(d, args.factor);
  T rounded[16];
  const auto probability = [&](hn::Vec<F> score) {
    StoreF32(d, Exp2(d, hn::MulSub(score, scale, max)), rounded);
    return hn::Mul(LoadF32(d, rounded), factor);
  };
  const T* powers = static_cast<const T*>(args.powers);
  float* scores = args.scores;
  int64_t i = 0;
  for (; i + lanes <= args.count; i += lanes) {
    hn::StoreU(powers == nullptr ? probability(hn::LoadU(d, scores + i))
                                 : hn::Mul(LoadF32(d, powers + i), factor),
               d, scores + i);
  }
  if (i == args.count) return;
  const int64_t left = args.count - i;
  StoreF32N(d,
            powers == nullptr ? probability(LoadF32N(d, scores + i, left))
                              : hn::Mul(LoadF32N(d, powers + i, left), factor),
            scores + i, left);
}

void ProbabilityRow(const ProbabilityRowArgs& args) {
  if (args.dtype == kBF16) return ProbabilityRowAs<BFloat16>(args);
  ProbabilityRowAs<float>(args);
}

template <typename T>
void CombineRowWith(const CombineRowArgs& args) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto a = hn::Set(d, args.a);
  const auto b = hn::Set(d, args.b);
  const T* y = static_cast<const T*>(args.y);
  int64_t i = 0;
  for (; i + lanes <= args.count; i += lanes) {
    const auto x = hn::Mul(hn::LoadU(d, args.x + i), a);
    hn::StoreU(hn::NegMulAdd(LoadF32(d, y + i), b, x), d, args.out + i);
  }
  if (i < args.count) {
    const int64_t left = args.count - i;
    const auto x = hn::Mul(LoadF32N(d, args.x + i, left), a);
    StoreF32N(d, hn::NegMulAdd(LoadF32N(d, y + i, left), b, x), args.out + i,
              left);
  }
}

void CombineRow(const CombineRowArgs& args) {
  if (args.y_dtype == kBF16) return CombineRowWith<BFloat16>(args);
  CombineRowWith<float>(args);
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::linear_cross_entropy
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::linear_cross_entropy {

void ProbabilityRow(const ProbabilityRowArgs& args, [[maybe_unused]] Isa isa) {
  ESPALIER_HWY_CALL(isa, ProbabilityRow)(args);
}

void CombineRow(const CombineRowArgs& args, [[maybe_unused]] Isa isa) {
  ESPALIER_HWY_CALL(isa, CombineRow)(args);
}

}  // namespace espalier::linear_cross_entropy
#endif
