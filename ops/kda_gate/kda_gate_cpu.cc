#include <algorithm>
#include <cmath>

#include "espalier/ops/kda_gate/internal/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/kda_gate/kda_gate_cpu.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/column_sum-inl.h"
#include "espalier/ops/math-inl.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::kda_gate {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

// exp(A_log) of every channel, finite, so that slopes of 0 stay 0.
template <class Args>
void SpreadRates(const Args& args) {
  const int64_t heads = args.A_log.dim(0);
  const int64_t width = args.dt_bias.dim(0);
  float* rates = args.rates.template data<float>();
  for (int64_t n = 0; n < heads; ++n) {
    const float rate =
        std::exp(std::min(args.A_log.template data<const float>()[n], 80.0f));
    std::fill_n(rates + n * (width / heads), width / heads, rate);
  }
}

// log(1 + e) for e in [0, 1], relative error below 2e-7: 2 atanh(e / (2 + e))
// by its series.
HWY_INLINE Vector LogOnePlus(Vector e) {
  const F32Tag d;
  const auto s = hn::Div(e, hn::Add(hn::Set(d, 2.0f), e));
  const auto s2 = hn::Mul(s, s);
  auto p = hn::Set(d, 2.0f / 13);
  p = hn::MulAdd(p, s2, hn::Set(d, 2.0f / 11));
  p = hn::MulAdd(p, s2, hn::Set(d, 2.0f / 9));
  p = hn::MulAdd(p, s2, hn::Set(d, 2.0f / 7));
  p = hn::MulAdd(p, s2, hn::Set(d, 2.0f / 5));
  p = hn::MulAdd(p, s2, hn::Set(d, 2.0f / 3));
  p = hn::MulAdd(p, s2, hn::Set(d, 2.0f));
  return hn::Mul(p, s);
}

// -rate * softplus(z).
HWY_INLINE Vector SoftplusGate(Vector z, Vector rate) {
  const F32Tag d;
  const auto e = Exp(d, hn::Neg(hn::Abs(z)));
  const auto positive = AtLeast(d, 0.0f, z);
  return hn::Neg(hn::Mul(rate, hn::Add(positive, LogOnePlus(e))));
}

template <typename T>
void Forward(const ForwardArgs& args, const Exec& exec) {
  SpreadRates(args);
  const int64_t width = args.dt_bias.dim(0);
  const float* bias = args.dt_bias.data<const float>();
  const float* rates = args.rates.data<const float>();
  const float bound = static_cast<float>(args.bound);
  exec.pool.ParallelFor(
      args.f.dim(0), RowGrain(width), [&](int64_t begin, int64_t end) {
        const F32Tag d;
        for (int64_t t = begin; t < end; ++t) {
          const T* f = args.f.data<const T>() + t * width;
          float* g = args.g.data<float>() + t * width;
          ForEachVector(width, [&](int64_t c, auto io) {
            const auto z = hn::Add(io.Load(d, f + c), io.Load(d, bias + c));
            const auto rate = io.Load(d, rates + c);
            const auto value =
                bound == 0
                    ? SoftplusGate(z, rate)
                    : hn::Mul(hn::Set(d, bound), Sigmoid(d, hn::Mul(rate, z)));
            io.Store(d, value, g + c);
          });
        }
      });
}

// df of one token and, with `sums` [2, N * K], its parts of the sums.
template <typename T>
void BackwardRow(const BackwardArgs& args, int64_t t, float* sums,
                 bool native) {
  const F32Tag d;
  const int64_t width = args.dt_bias.dim(0);
  const float bound = static_cast<float>(args.bound);
  const float* bias = args.dt_bias.data<const float>();
  const float* rates = args.rates.data<const float>();
  const T* f = args.f.data<const T>() + t * width;
  const float* dg = args.dg.data<const float>() + t * width;
  T* df = args.df ? args.df.data<T>() + t * width : nullptr;
  ForEachVector(width, WholeAccess{native}, [&](int64_t c, auto io) {
    const auto z = hn::Add(io.Load(d, f + c), io.Load(d, bias + c));
    const auto rate = io.Load(d, rates + c);
    const auto up = io.Load(d, dg + c);
    auto dz = z;
    auto da = z;
    if (bound == 0) {
      dz = hn::Neg(hn::Mul(hn::Mul(rate, Sigmoid(d, z)), up));
      da = hn::Mul(SoftplusGate(z, rate), up);
    } else {
      const auto s = Sigmoid(d, hn::Mul(rate, z));
      // The slope first: it is 0 where the rate may be huge.
      const auto slope = hn::Mul(s, hn::Sub(hn::Set(d, 1.0f), s));
      dz = hn::Mul(hn::Mul(hn::Mul(slope, rate), hn::Set(d, bound)), up);
      da = hn::Mul(dz, z);
    }
    if (df != nullptr) io.Store(d, dz, df + c);
    if (sums == nullptr) return;
    io.Store(d, hn::Add(io.Load(d, sums + c), dz), sums + c);
    float* second = sums + width;
    io.Store(d, hn::Add(io.Load(d, second + c), da), second + c);
  });
}

template <typename T>
void Backward(const BackwardArgs& args, const Exec& exec) {
  SpreadRates(args);
  const int64_t width = args.dt_bias.dim(0);
  const int64_t num_tokens = args.f.dim(0);
  const bool native = RoundsNatively(exec);
  if (!args.dA_log && !args.ddt_bias) {
    exec.pool.ParallelFor(num_tokens, RowGrain(width),
                          [&](int64_t begin, int64_t end) {
                            for (int64_t t = begin; t < end; ++t) {
                              BackwardRow<T>(args, t, nullptr, native);
                            }
                          });
    return;
  }
  float* blocks = args.block_sums.data<float>();
  SumBlocks(exec, num_tokens, 2 * width, blocks, [&](int64_t t, float* sums) {
    BackwardRow<T>(args, t, sums, native);
  });
  if (args.ddt_bias) {
    AddBlocks(exec, num_tokens, width, blocks, args.ddt_bias.data<float>(),
              2 * width);
  }
  if (!args.dA_log) return;
  float* sums = args.sums.data<float>();
  AddBlocks(exec, num_tokens, width, blocks + width, sums, 2 * width);
  const int64_t heads = args.A_log.dim(0);
  const int64_t head_width = width / heads;
  for (int64_t n = 0; n < heads; ++n) {
    const F32Tag d;
    args.dA_log.data<float>()[n] =
        SumVectors(head_width, [&](int64_t i, auto io) {
          return io.Load(d, sums + n * head_width + i);
        });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::kda_gate
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::kda_gate {

ESPALIER_HWY_ROWS(ForwardCpu, ForwardArgs, Forward);
ESPALIER_HWY_ROWS(BackwardCpu, BackwardArgs, Backward);

}  // namespace espalier::kda_gate
#endif
