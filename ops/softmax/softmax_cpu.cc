#include <algorithm>
#include <limits>

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

// e^v, as exact as results of T need.
template <typename T>
HWY_INLINE Vector ExpFor(Vector v) {
  const F32Tag d;
  if constexpr (sizeof(T) == 2) {
    return Exp2Brief(d, hn::Mul(v, hn::Set(d, 1.44269504f)));
  } else {
    return Exp(d, v);
  }
}

// A row of x in pieces of kColumns, so that what is read is in the caches
// for the second pass over it and memory delivers the next piece while this one
// is computed. The exponentials e^(x - maximum of the piece) wait in `scratch`
// [ScratchWidth(width)], the maxima behind them, until the maximum and the sum
// of the row are known.
template <typename T, class Access>
void ForwardRow(const T* x, int64_t width, float* scratch, T* y,
                const Access& access) {
  const F32Tag d;
  float* const maxima = scratch + width;
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;
  for (int64_t begin = 0; begin < width; begin += kColumns) {
    const int64_t count = std::min(kColumns, width - begin);
    const T* const piece = x + begin;
    // Finite, also of nothing but -infinity.
    const float piece_max = std::max(
        -std::numeric_limits<float>::max(),
        MaxPairs<T>(count,
                    [&](int64_t h, auto io) { return io.Load(d, piece + h); }));
    const auto shift = hn::Set(d, piece_max);
    const float piece_sum = SumPairs<T>(count, [&](int64_t h, auto io) {
      io.Prefetch(piece + kColumns + h);
      const auto e = ExpFor<T>(hn::Sub(io.Load(d, piece + h), shift));
      io.Store(d, e, scratch + begin + h);
      return e;
    });
    maxima[begin / kColumns] = piece_max;
    // The sum so far belongs to the maximum so far.
    const float next_max = std::max(max, piece_max);
    sum = sum * hn::GetLane(Exp(d, hn::Set(d, max - next_max))) +
          piece_sum * hn::GetLane(Exp(d, hn::Set(d, piece_max - next_max)));
    max = next_max;
  }
  for (int64_t begin = 0; begin < width; begin += kColumns) {
    const int64_t count = std::min(kColumns, width - begin);
    const auto factor = hn::Div(
        Exp(d, hn::Set(d, maxima[begin / kColumns] - max)), hn::Set(d, sum));
    ForEachPair<T>(count, access, [&](int64_t h, auto io) {
      const int64_t at = begin + h;
      io.Store(d, hn::Mul(io.Load(d, scratch + at), factor), y + at);
    });
  }
}

template <typename T>
void Forward(const ForwardArgs& args, const Exec& exec) {
  const int64_t width = args.x.dim(-1);
  if (width == 0) return;
  const int64_t rows = args.x.num_rows();
  const T* x = args.x.data<const T>();
  T* y = args.y.data<T>();
  ScratchSlots slots(args.scratch.pointer,
                     args.scratch.dim(1) * int64_t{sizeof(float)},
                     static_cast<int>(args.scratch.dim(0)));
  const bool native = RoundsNatively(exec);
  const bool streams = StreamsRows(y, rows, width, sizeof(T));
  exec.pool.ParallelFor(rows, RowGrain(width), [&](int64_t begin, int64_t end) {
    const ScratchSlots::Lease lease(slots);
    float* scratch = reinterpret_cast<float*>(lease.data());
    for (int64_t t = begin; t < end; ++t) {
      if (streams) {
        ForwardRow(x + t * width, width, scratch, y + t * width,
                   StreamAccess{{native}});
      } else {
        ForwardRow(x + t * width, width, scratch, y + t * width,
                   WholeAccess{native});
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
                 const float dot = SumPairs<T>(width, [&](int64_t h, auto io) {
                   return hn::Mul(io.Load(d, y + h), io.Load(d, dy + h));
                 });
                 ForEachPair<T>(width, access, [&](int64_t h, auto io) {
                   io.Prefetch(y + width + h);
                   io.Prefetch(dy + width + h);
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
