#include <cmath>

#include "espalier/ops/online_softmax/online_softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/online_softmax/online_softmax_cpu.cc"
// The first include sets up the second.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/exp2-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::online_softmax {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using espalier::HWY_NAMESPACE::Exp2;
using espalier::HWY_NAMESPACE::StoreF32;
using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;

// score = cap * tanh(score * scale / cap) * log2(e).
void CapRow(float* s, int64_t n, float scale, float cap) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, 1.0f);
  const auto inner = hn::Set(d, -2 * scale / cap * static_cast<float>(kLog2E));
  const auto outer = hn::Set(d, cap * static_cast<float>(kLog2E));
  for (int64_t i = 0; i < n; i += lanes) {
    const auto x = hn::LoadU(d, s + i);
    const auto e = Exp2(d, hn::Neg(hn::Abs(hn::Mul(x, inner))));
    const auto tanh = hn::Div(hn::Sub(one, e), hn::Add(one, e));
    hn::StoreU(
        hn::Mul(hn::CopySign(tanh, hn::Mul(x, hn::Set(d, scale))), outer), d,
        s + i);
  }
}

// Reads and writes whole vectors: what lies behind n becomes 0.
float MaxOfRow(const float* s, int64_t n, float scale) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, scale);
  auto max0 = hn::Set(d, -INFINITY);
  auto max1 = max0;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    max0 = hn::Max(max0, hn::Mul(hn::LoadU(d, s + i), factor));
    max1 = hn::Max(max1, hn::Mul(hn::LoadU(d, s + i + lanes), factor));
  }
  for (; i < n; i += lanes) {
    const auto seen = hn::FirstN(d, static_cast<size_t>(n - i));
    const auto z = hn::Mul(hn::LoadU(d, s + i), factor);
    max0 = hn::Max(max0, hn::IfThenElse(seen, z, max0));
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(max0, max1)));
}

float ExpRow(float* s, int64_t n, float scale, float max) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, scale);
  const auto shift = hn::Set(d, max);
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = Exp2(d, hn::MulSub(hn::LoadU(d, s + i), factor, shift));
    const auto b =
        Exp2(d, hn::MulSub(hn::LoadU(d, s + i + lanes), factor, shift));
    hn::StoreU(a, d, s + i);
    hn::StoreU(b, d, s + i + lanes);
    sum0 = hn::Add(sum0, a);
    sum1 = hn::Add(sum1, b);
  }
  for (; i < n; i += lanes) {
    const auto seen = hn::FirstN(d, static_cast<size_t>(n - i));
    const auto a = hn::IfThenElseZero(
        seen, Exp2(d, hn::MulSub(hn::LoadU(d, s + i), factor, shift)));
    hn::StoreU(a, d, s + i);
    sum0 = hn::Add(sum0, a);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
}

void ScaleRow(float* out, int64_t width, float factor) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, out + i), hn::Set(d, factor)), d, out + i);
  }
  for (; i < width; ++i) out[i] *= factor;
}

void AddBlock(const BlockArgs& args) {
  const F d;
  for (int r = 0; r < args.rows; ++r) {
    float* s = args.scores + r * args.stride;
    const int64_t begin = args.begin[r];
    const int64_t end = args.end[r];
    if (begin >= end) {
      for (int64_t i = args.zero_begin; i < args.zero_end; ++i) s[i] = 0;
      continue;
    }
    float scale = args.scale * static_cast<float>(kLog2E);
    if (args.cap > 0) {
      CapRow(s + begin, end - begin, args.scale, args.cap);
      scale = 1;
    }
    const float block_max = MaxOfRow(s + begin, end - begin, scale);
    if (block_max > args.max[r]) {
      // Scaled scores are rounded once here and not at all in ExpRow, so the
      // largest power may be a little above 1: Exp2 is continuous there.
      const float factor =
          hn::GetLane(Exp2(d, hn::Set(d, args.max[r] - block_max)));
      args.max[r] = block_max;
      args.sum[r] *= factor;
      if (args.out != nullptr) {
        ScaleRow(args.out + r * args.out_stride, args.out_width, factor);
      }
    }
    args.sum[r] += ExpRow(s + begin, end - begin, scale, args.max[r]);
    for (int64_t i = args.zero_begin; i < begin; ++i) s[i] = 0;
    for (int64_t i = end; i < args.zero_end; ++i) s[i] = 0;
  }
}

template <typename T>
void ScaleRowsTo(const ScaleRowsArgs& args) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* from = args.from + r * args.from_stride;
    T* to = static_cast<T*>(args.to) + r * args.to_stride;
    const auto factor = hn::Set(d, args.factors[r]);
    int64_t i = 0;
    for (; i + lanes <= args.width; i += lanes) {
      StoreF32(d, hn::Mul(hn::LoadU(d, from + i), factor), to + i);
    }
    for (; i < args.width; ++i) to[i] = T(from[i] * args.factors[r]);
  }
}

void ScaleRows(const ScaleRowsArgs& args) {
  if (args.to_dtype == kBF16) return ScaleRowsTo<BFloat16>(args);
  ScaleRowsTo<float>(args);
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::online_softmax
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::online_softmax {

void AddBlock(const BlockArgs& args, [[maybe_unused]] Isa isa) {
  ESPALIER_HWY_CALL(isa, AddBlock)(args);
}

void ScaleRows(const ScaleRowsArgs& args, [[maybe_unused]] Isa isa) {
  ESPALIER_HWY_CALL(isa, ScaleRows)(args);
}

float LogSumExp(float max, float sum) {
  return static_cast<float>((max + std::log2(static_cast<double>(sum))) * kLn2);
}

}  // namespace espalier::online_softmax
#endif
