#include <cmath>

#include "espalier/ops/l2_norm/internal/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/l2_norm/l2_norm_cpu.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::l2_norm {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

template <typename T>
void Forward(const ForwardArgs& args, const Exec& exec) {
  const int64_t width = args.x.dim(-1);
  ParallelRows(
      exec, args.rsum.dim(0), width, args.y.pointer, sizeof(T),
      [&](int64_t t, auto access) {
        const F32Tag d;
        const T* x = args.x.data<const T>() + t * width;
        T* y = args.y.data<T>() + t * width;
        const float sum = SumPairs<T>(width, [&](int64_t i, auto io) {
          const auto v = io.Load(d, x + i);
          return hn::Mul(v, v);
        });
        const float r = 1.0f / std::sqrt(sum + static_cast<float>(args.eps));
        args.rsum.data<float>()[t] = r;
        ForEachPair<T>(width, access, [&](int64_t i, auto io) {
          io.Prefetch(x + width + i);
          io.Store(d, hn::Mul(io.Load(d, x + i), hn::Set(d, r)), y + i);
        });
      });
}

template <typename T>
void Backward(const BackwardArgs& args, const Exec& exec) {
  const int64_t width = args.x.dim(-1);
  ParallelRows(exec, args.rsum.dim(0), width, args.dx.pointer, sizeof(T),
               [&](int64_t t, auto access) {
                 const F32Tag d;
                 const T* x = args.x.data<const T>() + t * width;
                 const T* dy = args.dy.data<const T>() + t * width;
                 T* dx = args.dx.data<T>() + t * width;
                 const float r = args.rsum.data<const float>()[t];
                 const float dot = SumPairs<T>(width, [&](int64_t i, auto io) {
                   return hn::Mul(io.Load(d, dy + i), io.Load(d, x + i));
                 });
                 const auto scale = hn::Set(d, r * r * r * dot);
                 ForEachPair<T>(width, access, [&](int64_t i, auto io) {
                   io.Prefetch(x + width + i);
                   io.Prefetch(dy + width + i);
                   const auto norm = hn::Mul(io.Load(d, x + i), scale);
                   io.Store(d,
                            hn::MulSub(io.Load(d, dy + i), hn::Set(d, r), norm),
                            dx + i);
                 });
               });
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::l2_norm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::l2_norm {

ESPALIER_HWY_ROWS(ForwardCpu, ForwardArgs, Forward);
ESPALIER_HWY_ROWS(BackwardCpu, BackwardArgs, Backward);

}  // namespace espalier::l2_norm
#endif
