#include "espalier/ops/adamw/internal/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/adamw/adamw_cpu.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::adamw {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

void UpdateF32(const Args& args, const Exec& exec) {
  float* p = args.parameter.data<float>();
  const float* gradient = args.gradient.data<const float>();
  float* m = args.m.data<float>();
  float* v = args.v.data<float>();
  BFloat16* copy = args.bf16_copy.data<BFloat16>();
  exec.pool.ParallelFor(
      args.parameter.num_elements(), kPointwiseGrain,
      [&](int64_t begin, int64_t end) {
        const F32Tag d;
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
        ForEachVector(end - begin, [&](int64_t i, auto io) {
          const int64_t at = begin + i;
          const auto g = hn::Mul(io.Load(d, gradient + at), scale);
          const auto mi =
              hn::MulAdd(beta1, io.Load(d, m + at), hn::Mul(rest1, g));
          const auto vi = hn::MulAdd(beta2, io.Load(d, v + at),
                                     hn::Mul(rest2, hn::Mul(g, g)));
          const auto denominator = hn::MulAdd(hn::Sqrt(vi), v_scale, eps);
          const auto change = hn::Div(hn::Mul(step, mi), denominator);
          const auto pi = hn::Sub(hn::Mul(decay, io.Load(d, p + at)), change);
          io.Store(d, mi, m + at);
          io.Store(d, vi, v + at);
          io.Store(d, pi, p + at);
          if (copy != nullptr) io.Store(d, pi, copy + at);
        });
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
