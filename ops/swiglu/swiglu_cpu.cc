#include "espalier/ops/swiglu/internal/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/swiglu/swiglu_cpu.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/activations-inl.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::swiglu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

template <typename T>
void Forward(const ForwardArgs& args, const Exec& exec) {
  const F32Tag d;
  const T* gate = args.gate.data<const T>();
  const T* up = args.up.data<const T>();
  T* y = args.y.data<T>();
  const int64_t n = args.y.num_elements();
  WithActivation(args.activation, [&]<Activation kActivation>() {
    ParallelPointwise(exec, n, Streams(y, n * int64_t{sizeof(T)}),
                      [&](int64_t begin, int64_t count, auto access) {
                        ForEachPair<T>(count, access, [&](int64_t i, auto io) {
                          auto slope = hn::Zero(d);
                          const auto value = Activate<kActivation, T>(
                              d, io.Load(d, gate + begin + i), slope);
                          io.Store(d,
                                   hn::Mul(value, io.Load(d, up + begin + i)),
                                   y + begin + i);
                        });
                      });
  });
}

template <typename T>
void Backward(const BackwardArgs& args, const Exec& exec) {
  const F32Tag d;
  const T* dy = args.dy.data<const T>();
  const T* gate = args.gate.data<const T>();
  const T* up = args.up.data<const T>();
  T* dgate = args.dgate.data<T>();
  T* dup = args.dup.data<T>();
  const int64_t n = args.dy.num_elements();
  const int64_t bytes = n * int64_t{sizeof(T)};
  const bool streams = (dgate == nullptr || Streams(dgate, bytes)) &&
                       (dup == nullptr || Streams(dup, bytes));
  WithActivation(args.activation, [&]<Activation kActivation>() {
    ParallelPointwise(
        exec, n, streams, [&](int64_t begin, int64_t count, auto access) {
          ForEachPair<T>(count, access, [&](int64_t i, auto io) {
            const int64_t at = begin + i;
            auto slope = hn::Zero(d);
            const auto value =
                Activate<kActivation, T>(d, io.Load(d, gate + at), slope);
            const auto g = io.Load(d, dy + at);
            if (dgate != nullptr) {
              const auto u = io.Load(d, up + at);
              io.Store(d, hn::Mul(hn::Mul(g, u), slope), dgate + at);
            }
            if (dup != nullptr) io.Store(d, hn::Mul(g, value), dup + at);
          });
        });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::swiglu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::swiglu {

ESPALIER_HWY_ROWS(ForwardCpu, ForwardArgs, Forward);
ESPALIER_HWY_ROWS(BackwardCpu, BackwardArgs, Backward);

}  // namespace espalier::swiglu
#endif
