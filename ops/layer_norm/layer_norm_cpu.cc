#include <cmath>

#include "espalier/ops/layer_norm/internal/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/layer_norm/layer_norm_cpu.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/column_sum-inl.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::layer_norm {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

template <typename T>
void Forward(const ForwardArgs& args, const Exec& exec) {
  const int64_t width = args.x.dim(-1);
  const auto count = static_cast<float>(width);
  const T* weight = args.weight.data<const T>();
  const T* bias = args.bias.data<const T>();
  const auto eps = static_cast<float>(args.eps);
  ParallelRows(
      exec, args.rstd.dim(0), width, args.y.pointer, sizeof(T),
      [&](int64_t t, auto access) {
        const F32Tag d;
        const T* x = args.x.data<const T>() + t * width;
        T* y = args.y.data<T>() + t * width;
        const float mean =
            SumPairs<T>(width,
                        [&](int64_t h, auto io) { return io.Load(d, x + h); }) /
            count;
        const auto shift = hn::Set(d, mean);
        const float variance =
            SumPairs<T>(width,
                        [&](int64_t h, auto io) {
                          const auto v = hn::Sub(io.Load(d, x + h), shift);
                          return hn::Mul(v, v);
                        }) /
            count;
        const float rstd = 1.0f / std::sqrt(variance + eps);
        args.mean.data<float>()[t] = mean;
        args.rstd.data<float>()[t] = rstd;
        ForEachPair<T>(width, access, [&](int64_t h, auto io) {
          io.Prefetch(x + width + h);
          const auto xhat =
              hn::Mul(hn::Sub(io.Load(d, x + h), shift), hn::Set(d, rstd));
          const auto w = io.Load(d, weight + h);
          io.Store(d,
                   bias != nullptr ? hn::MulAdd(xhat, w, io.Load(d, bias + h))
                                   : hn::Mul(xhat, w),
                   y + h);
        });
      });
}

// dx of one row and, with `sums` [2, H], its part of dweight and dbias.
template <typename T, class Access>
void BackwardRow(const BackwardArgs& args, int64_t t, float* sums,
                 const Access& access) {
  const F32Tag d;
  const int64_t width = args.x.dim(-1);
  const T* x = args.x.data<const T>() + t * width;
  const T* dy = args.dy.data<const T>() + t * width;
  const T* weight = args.weight.data<const T>();
  const auto mean = hn::Set(d, args.mean.data<const float>()[t]);
  const auto rstd = hn::Set(d, args.rstd.data<const float>()[t]);
  const auto xhat_at = [&](int64_t h, auto io) {
    return hn::Mul(hn::Sub(io.Load(d, x + h), mean), rstd);
  };
  if (sums != nullptr) {
    ForEachVector(width, [&](int64_t h, auto io) {
      const auto g = io.Load(d, dy + h);
      float* weight_sums = sums + h;
      float* bias_sums = sums + width + h;
      io.Store(d, hn::MulAdd(g, xhat_at(h, io), io.Load(d, weight_sums)),
               weight_sums);
      io.Store(d, hn::Add(g, io.Load(d, bias_sums)), bias_sums);
    });
  }
  if (!args.dx) return;
  const auto count = static_cast<float>(width);
  const auto g_at = [&](int64_t h, auto io) {
    return hn::Mul(io.Load(d, dy + h), io.Load(d, weight + h));
  };
  const float sum = SumPairs<T>(width, g_at) / count;
  // The lanes beyond the row: g is 0 there.
  const float dot = SumPairs<T>(width,
                                [&](int64_t h, auto io) {
                                  return hn::Mul(g_at(h, io), xhat_at(h, io));
                                }) /
                    count;
  T* dx = args.dx.data<T>() + t * width;
  ForEachPair<T>(width, access, [&](int64_t h, auto io) {
    io.Prefetch(x + width + h);
    io.Prefetch(dy + width + h);
    const auto rest = hn::Sub(g_at(h, io), hn::Set(d, sum));
    io.Store(
        d, hn::Mul(rstd, hn::NegMulAdd(xhat_at(h, io), hn::Set(d, dot), rest)),
        dx + h);
  });
}

template <typename T>
void Backward(const BackwardArgs& args, const Exec& exec) {
  const int64_t rows = args.rstd.dim(0);
  const int64_t width = args.x.dim(-1);
  if (!args.dweight && !args.dbias) {
    ParallelRows(exec, rows, width, args.dx.pointer, sizeof(T),
                 [&](int64_t t, auto access) {
                   BackwardRow<T>(args, t, nullptr, access);
                 });
    return;
  }
  float* blocks = args.block_sums.data<float>();
  SumAndWriteRows(exec, rows, 2 * width, blocks, width, args.dx.pointer,
                  sizeof(T), [&](int64_t t, float* sums, auto access) {
                    BackwardRow<T>(args, t, sums, access);
                  });
  if (args.dweight) {
    AddBlocks(exec, rows, width, blocks, args.dweight.data<T>(), 2 * width);
  }
  if (args.dbias) {
    AddBlocks(exec, rows, width, blocks + width, args.dbias.data<T>(),
              2 * width);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::layer_norm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::layer_norm {

ESPALIER_HWY_ROWS(ForwardCpu, ForwardArgs, Forward);
ESPALIER_HWY_ROWS(BackwardCpu, BackwardArgs, Backward);

}  // namespace espalier::layer_norm
#endif
