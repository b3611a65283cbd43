#include "espalier/ops/activation/internal/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/activation/activation_cpu.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/activations-inl.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::activation {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

template <typename T>
void Forward(const ForwardArgs& args, const Exec& exec) {
  const F32Tag d;
  const T* x = args.x.data<const T>();
  T* y = args.y.data<T>();
  const int64_t n = args.y.num_elements();
  WithActivation(args.activation, [&]<Activation kActivation>() {
    ParallelPointwise(exec, n, Streams(y, n * int64_t{sizeof(T)}),
                      [&](int64_t begin, int64_t count, auto access) {
                        ForEachPair<T>(count, access, [&](int64_t i, auto io) {
                          auto slope = hn::Zero(d);
                          io.Store(d,
                                   Activate<kActivation, T>(
                                       d, io.Load(d, x + begin + i), slope),
                                   y + begin + i);
                        });
                      });
  });
}

template <typename T>
void Backward(const BackwardArgs& args, const Exec& exec) {
  const F32Tag d;
  const T* dy = args.dy.data<const T>();
  const T* x = args.x.data<const T>();
  T* dx = args.dx.data<T>();
  const int64_t n = args.dx.num_elements();
  WithActivation(args.activation, [&]<Activation kActivation>() {
    ParallelPointwise(
        exec, n, Streams(dx, n * int64_t{sizeof(T)}),
        [&](int64_t begin, int64_t count, auto access) {
          ForEachPair<T>(count, access, [&](int64_t i, auto io) {
            const int64_t at = begin + i;
            auto slope = hn::Zero(d);
            Activate<kActivation, T>(d, io.Load(d, x + at), slope);
            io.Store(d, hn::Mul(io.Load(d, dy + at), slope), dx + at);
          });
        });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::activation
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::activation {

ESPALIER_HWY_ROWS(ForwardCpu, ForwardArgs, Forward);
ESPALIER_HWY_ROWS(BackwardCpu, BackwardArgs, Backward);

}  // namespace espalier::activation
#endif
