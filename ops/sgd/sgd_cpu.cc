#include "espalier/ops/sgd/internal/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/sgd/sgd_cpu.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::sgd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

void UpdateF32(const Args& args, const Exec& exec) {
  float* p = args.parameter.data<float>();
  const float* gradient = args.gradient.data<const float>();
  float* buffer = args.buffer.data<float>();
  exec.pool.ParallelFor(
      args.parameter.num_elements(), kPointwiseGrain,
      [&](int64_t begin, int64_t end) {
        const F32Tag d;
        const auto set = [&](double x) {
          return hn::Set(d, static_cast<float>(x));
        };
        const auto scale = set(args.gradient_scale);
        const auto momentum = set(args.momentum);
        const auto decay = set(args.decay);
        const auto rate = set(args.learning_rate);
        ForEachVector(end - begin, [&](int64_t i, auto io) {
          const int64_t at = begin + i;
          const auto g = hn::Mul(io.Load(d, gradient + at), scale);
          auto direction = g;
          if (buffer != nullptr) {
            const auto b = hn::MulAdd(momentum, io.Load(d, buffer + at), g);
            io.Store(d, b, buffer + at);
            direction = args.nesterov ? hn::MulAdd(momentum, b, g) : b;
          }
          const auto kept = hn::Mul(decay, io.Load(d, p + at));
          io.Store(d, hn::NegMulAdd(rate, direction, kept), p + at);
        });
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::sgd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::sgd {

void CpuF32(const Args& args, const Exec& exec) {
  ESPALIER_HWY_CALL(exec.isa, UpdateF32)(args, exec);
}

}  // namespace espalier::sgd
#endif
