#include "espalier/ops/attention/internal/rows.h"
#include "espalier/ops/online_softmax/online_softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/attention/attention_rows_cpu.cc"
// The first include sets up the second.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/exp2-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::attention {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using espalier::HWY_NAMESPACE::Exp2;
using espalier::HWY_NAMESPACE::LoadF32;
using espalier::HWY_NAMESPACE::LoadF32N;
using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;

constexpr float kLog2E = static_cast<float>(online_softmax::kLog2E);

// What the gradient of a row needs in every lane.
struct RowState {
  V factor, lse, delta;
};

// p and its gradient; kCapped adds the tanh.
template <bool kCapped>
void Gradient(F d, const GradientRowsArgs& args, const RowState& row, V& score,
              V& dpower) {
  if constexpr (kCapped) {
    const V one = hn::Set(d, 1.0f);
    const V inner = hn::Set(d, -2 * args.scale / args.cap * kLog2E);
    const V e = Exp2(d, hn::Neg(hn::Abs(hn::Mul(score, inner))));
    const V tanh = hn::Div(hn::Sub(one, e), hn::Add(one, e));
    const V signed_tanh =
        hn::CopySign(tanh, hn::Mul(score, hn::Set(d, args.scale)));
    const V z = hn::Mul(signed_tanh, hn::Set(d, args.cap * kLog2E));
    score = Exp2(d, hn::Sub(z, row.lse));
    const V slope = hn::NegMulAdd(tanh, tanh, one);
    dpower = hn::Mul(hn::Mul(score, hn::Sub(dpower, row.delta)), slope);
  } else {
    score = Exp2(d, hn::MulSub(score, row.factor, row.lse));
    dpower = hn::Mul(score, hn::Sub(dpower, row.delta));
  }
}

template <bool kCapped>
void GradientRow(const GradientRowsArgs& args, int r) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  float* scores = args.scores + r * args.stride;
  float* dpowers = args.dpowers + r * args.stride;
  const int64_t begin = args.begin[r];
  const int64_t end = args.end[r];
  const RowState row = {hn::Set(d, args.scale * kLog2E),
                        hn::Set(d, args.lse[r] * kLog2E),
                        hn::Set(d, args.delta[r])};
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    V score = hn::LoadU(d, scores + i);
    V dpower = hn::LoadU(d, dpowers + i);
    Gradient<kCapped>(d, args, row, score, dpower);
    hn::StoreU(score, d, scores + i);
    hn::StoreU(dpower, d, dpowers + i);
  }
  if (i < end) {
    const auto seen = hn::FirstN(d, static_cast<size_t>(end - i));
    V score = hn::LoadU(d, scores + i);
    V dpower = hn::LoadU(d, dpowers + i);
    Gradient<kCapped>(d, args, row, score, dpower);
    hn::StoreU(hn::IfThenElseZero(seen, score), d, scores + i);
    hn::StoreU(hn::IfThenElseZero(seen, dpower), d, dpowers + i);
  }
  for (int64_t c = args.zero_begin; c < begin && c < args.zero_end; ++c) {
    scores[c] = 0;
    dpowers[c] = 0;
  }
  for (int64_t c = end > args.zero_begin ? end : args.zero_begin;
       c < args.zero_end; ++c) {
    scores[c] = 0;
    dpowers[c] = 0;
  }
}

void GradientRows(const GradientRowsArgs& args) {
  for (int r = 0; r < args.rows; ++r) {
    if (args.cap > 0) {
      GradientRow<true>(args, r);
    } else {
      GradientRow<false>(args, r);
    }
  }
}

template <typename T>
void DeltaOf(const DeltaArgs& args) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t num_tokens = args.o.dim(0);
  const int64_t num_heads = args.o.dim(1);
  const int64_t width = args.o.dim(2);
  for (int64_t t = args.begin; t < args.end; ++t) {
    for (int64_t head = 0; head < num_heads; ++head) {
      const int64_t row = (t * num_heads + head) * width;
      const T* dout = args.dout.data<const T>() + row;
      const T* o = args.o.data<const T>() + row;
      V sum = hn::Zero(d);
      int64_t i = 0;
      for (; i + lanes <= width; i += lanes) {
        sum = hn::MulAdd(LoadF32(d, dout + i), LoadF32(d, o + i), sum);
      }
      if (i < width) {
        sum = hn::MulAdd(LoadF32N(d, dout + i, width - i),
                         LoadF32N(d, o + i, width - i), sum);
      }
      args.delta[head * num_tokens + t] = hn::GetLane(hn::SumOfLanes(d, sum));
    }
  }
}

void Delta(const DeltaArgs& args) {
  if (args.o.dtype == kBF16) return DeltaOf<BFloat16>(args);
  DeltaOf<float>(args);
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::attention
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::attention {

void GradientRows(const GradientRowsArgs& args, [[maybe_unused]] Isa isa) {
  ESPALIER_HWY_CALL(isa, GradientRows)(args);
}

void Delta(const DeltaArgs& args, [[maybe_unused]] Isa isa) {
  ESPALIER_HWY_CALL(isa, Delta)(args);
}

}  // namespace espalier::attention
#endif
