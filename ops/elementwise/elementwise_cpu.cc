#include <algorithm>

#include "espalier/ops/elementwise/internal/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/elementwise/elementwise_cpu.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/column_sum-inl.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::elementwise {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

// y[i] = function(a[i], b[i]), or of the row b where b is one.
template <typename T, class Function>
void Binary(const View& a_view, const View& b_view, const View& y_view,
            const Exec& exec, const Function& function) {
  const F32Tag d;
  const T* a = a_view.data<const T>();
  const T* b = b_view.data<const T>();
  T* y = y_view.data<T>();
  const int64_t n = y_view.num_elements();
  const int64_t width = b_view.num_elements();
  if (width == n) {
    ParallelPointwise(
        exec, n, Streams(y, n * int64_t{sizeof(T)}),
        [&](int64_t begin, int64_t count, auto access) {
          ForEachPair<T>(count, access, [&](int64_t i, auto io) {
            const int64_t at = begin + i;
            io.Store(d, function(io.Load(d, a + at), io.Load(d, b + at)),
                     y + at);
          });
        });
    return;
  }
  ParallelRows(
      exec, n / width, width, y, sizeof(T), [&](int64_t t, auto access) {
        ForEachPair<T>(width, access, [&](int64_t i, auto io) {
          const int64_t at = t * width + i;
          io.Store(d, function(io.Load(d, a + at), io.Load(d, b + i)), y + at);
        });
      });
}

template <typename T>
void AddScaled(const AddScaledArgs& args, const Exec& exec) {
  if (args.y.num_elements() == 0) return;
  const F32Tag d;
  const auto factor = static_cast<float>(args.factor);
  Binary<T>(args.a, args.b, args.y, exec, [&](auto a, auto b) {
    return hn::MulAdd(b, hn::Set(d, factor), a);
  });
}

template <typename T>
void Mul(const MulArgs& args, const Exec& exec) {
  if (args.y.num_elements() == 0) return;
  Binary<T>(args.a, args.b, args.y, exec,
            [](auto a, auto b) { return hn::Mul(a, b); });
}

template <typename T>
void Scale(const ScaleArgs& args, const Exec& exec) {
  const F32Tag d;
  const auto factor = static_cast<float>(args.factor);
  const T* x = args.x.data<const T>();
  T* y = args.y.data<T>();
  const int64_t n = args.y.num_elements();
  ParallelPointwise(
      exec, n, Streams(y, n * int64_t{sizeof(T)}),
      [&](int64_t begin, int64_t count, auto access) {
        ForEachPair<T>(count, access, [&](int64_t i, auto io) {
          io.Store(d, hn::Mul(io.Load(d, x + begin + i), hn::Set(d, factor)),
                   y + begin + i);
        });
      });
}

template <typename T>
void ColumnSum(const ColumnSumArgs& args, const Exec& exec) {
  const F32Tag d;
  const int64_t width = args.sum.num_elements();
  if (width == 0) return;
  const int64_t rows = args.a.num_elements() / width;
  const T* a = args.a.data<const T>();
  const T* b = args.b.data<const T>();
  float* blocks = args.block_sums.data<float>();
  SumBlocks(exec, rows, width, blocks, [&](int64_t t, float* sums) {
    ForEachVector(width, [&](int64_t i, auto io) {
      const auto old = io.Load(d, sums + i);
      const auto va = io.Load(d, a + t * width + i);
      io.Store(d,
               b != nullptr ? hn::MulAdd(va, io.Load(d, b + t * width + i), old)
                            : hn::Add(va, old),
               sums + i);
    });
  });
  AddBlocks(exec, rows, width, blocks, args.sum.data<T>());
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::elementwise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::elementwise {

ESPALIER_HWY_ROWS(AddScaledCpu, AddScaledArgs, AddScaled);
ESPALIER_HWY_ROWS(MulCpu, MulArgs, Mul);
ESPALIER_HWY_ROWS(ScaleCpu, ScaleArgs, Scale);
ESPALIER_HWY_ROWS(ColumnSumCpu, ColumnSumArgs, ColumnSum);

}  // namespace espalier::elementwise
#endif
