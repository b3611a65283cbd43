#include "espalier/ops/scratch_slots.h"
#include "espalier/ops/softmax/internal/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/softmax/softmax_cpu.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/math-inl.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::softmax {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

// The exponentials wait in `scratch` [width] until their sum is known.
template <typename T, class Access>
void ForwardRow(const T* x, int64_t width, float* scratch, T* y,
                const Access& access) {
  const F32Tag d;
  const float max =
      MaxVectors(width, [&](int64_t h, auto io) { return io.Load(d, x + h); });
  const auto shift = hn::Set(d, max);
  const float sum = SumVectors(width, [&](int64_t h, auto io) {
    const auto e = Exp(d, hn::Sub(io.Load(d, x + h), shift));
    io.Store(d, e, scratch + h);
    return e;
  });
  const auto factor = hn::Set(d, 1.0f / sum);
  ForEachVector(width, access, [&](int64_t h, auto io) {
    io.Store(d, hn::Mul(io.Load(d, scratch + h), factor), y + h);
  });
}

template <typename T>
void Forward(const ForwardArgs& args, const Exec& exec) {
  const int64_t width = args.x.dim(-1);
  if (width == 0) return;
  const int64_t rows = args.x.num_rows();
  const T* x = args.x.data<const T>();
  T* y = args.y.data<T>();
  ScratchSlots slots(args.scratch.pointer, width * int64_t{sizeof(float)},
                     static_cast<int>(args.scratch.dim(0)));
  const bool streams = StreamsRows(y, rows, width, sizeof(T));
  exec.pool.ParallelFor(rows, RowGrain(width), [&](int64_t begin, int64_t end) {
    const ScratchSlots::Lease lease(slots);
    float* scratch = reinterpret_cast<float*>(lease.data());
    for (int64_t t = begin; t < end; ++t) {
      if (streams) {
        ForwardRow(x + t * width, width, scratch, y + t * width,
                   StreamAccess());
      } else {
        ForwardRow(x + t * width, width, scratch, y + t * width, WholeAccess());
      }
    }
    if (streams) hwy::FlushStream();
  });
}

template <typename T>
void Backward(const BackwardArgs& args, const Exec& exec) {
  const int64_t width = args.y.dim(-1);
  ParallelRows(exec, args.y.num_rows(), width, args.dx.pointer, sizeof(T),
               [&](int64_t t, auto access) {
                 const F32Tag d;
                 const T* y = args.y.data<const T>() + t * width;
                 const T* dy = args.dy.data<const T>() + t * width;
                 T* dx = args.dx.data<T>() + t * width;
                 const float dot = SumVectors(width, [&](int64_t h, auto io) {
                   return hn::Mul(io.Load(d, y + h), io.Load(d, dy + h));
                 });
                 ForEachVector(width, access, [&](int64_t h, auto io) {
                   io.Store(
                       d,
                       hn::Mul(io.Load(d, y + h),
                               hn::Sub(io.Load(d, dy + h), hn::Set(d, dot))),
                       dx + h);
                 });
               });
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::softmax
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::softmax {

ESPALIER_HWY_ROWS(ForwardCpu, ForwardArgs, Forward);
ESPALIER_HWY_ROWS(BackwardCpu, BackwardArgs, Backward);

}  // namespace espalier::softmax
#endif
