#include "espalier/ops/adamw/internal/kernels.h"
#include "espalier/runtime/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/adamw/adamw_cpu.cc"
#include "espalier/ops/highway.h"

HWY_BEFORE_NAMESPACE();
namespace espalier::adamw {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using espalier::HWY_NAMESPACE::LoadF32N;
using espalier::HWY_NAMESPACE::StoreF32N;
using F = hn::ScalableTag<float>;

constexpr int64_t kGrain = int64_t{1} << 14;

void UpdateF32(const Args& args, const Exec& exec) {
  float* p = args.parameter.data<float>();
  const float* gradient = args.gradient.data<const float>();
  float* m = args.m.data<float>();
  float* v = args.v.data<float>();
  exec.pool.ParallelFor(
      args.parameter.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
        const F d;
        const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
        const auto set = [&](double x) {
          return hn::Set(d, static_cast<float>(x));
        };
        const auto scale = set(args.gradient_scale);
        const auto beta1 = set(args.beta1);
        const auto rest1 = set(1 - args.beta1);
        const auto beta2 = set(args.beta2);
        const auto rest2 = set(1 - args.beta2);
        const auto v_scale = set(args.v_scale);
        const auto eps = set(args.eps);
        const auto decay = set(args.decay);
        const auto step = set(args.step_size);
        for (int64_t i = begin; i < end; i += lanes) {
          const int64_t n = end - i;
          const auto g = hn::Mul(LoadF32N(d, gradient + i, n), scale);
          const auto mi =
              hn::MulAdd(beta1, LoadF32N(d, m + i, n), hn::Mul(rest1, g));
          const auto vi = hn::MulAdd(beta2, LoadF32N(d, v + i, n),
                                     hn::Mul(rest2, hn::Mul(g, g)));
          const auto denominator = hn::MulAdd(hn::Sqrt(vi), v_scale, eps);
          const auto change = hn::Div(hn::Mul(step, mi), denominator);
          const auto pi =
              hn::Sub(hn::Mul(decay, LoadF32N(d, p + i, n)), change);
          StoreF32N(d, mi, m + i, n);
          StoreF32N(d, vi, v + i, n);
          StoreF32N(d, pi, p + i, n);
        }
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::adamw
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::adamw {

void CpuF32(const Args& args, const Exec& exec) {
  ESPALIER_HWY_CALL(exec.isa, UpdateF32)(args, exec);
}

}  // namespace espalier::adamw
#endif
