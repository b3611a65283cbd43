#include <algorithm>

#include "espalier/ops/reduce/internal/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/reduce/reduce_cpu.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::reduce {
namespace HWY_NAMESPACE {

// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

template <typename T>
void Sum(const SumArgs& args, const Exec& exec) {
  const T* x = args.x.data<const T>();
  float* pieces = args.pieces.data<float>();
  const int64_t n = args.x.num_elements();
  exec.pool.ParallelFor(n, kPointwiseGrain, [&](int64_t begin, int64_t end) {
    const F32Tag d;
    pieces[begin / kPointwiseGrain] = SumVectors(
        end - begin,
        [&](int64_t i, auto io) { return io.Load(d, x + begin + i); });
  });
  double sum = 0;
  for (int64_t piece = 0; piece * kPointwiseGrain < n; ++piece) {
    sum += pieces[piece];
  }
  *args.y.data<float>() = static_cast<float>(args.factor * sum);
}

template <typename T>
void Fill(const FillArgs& args, const Exec& exec) {
  T* dx = args.dx.data<T>();
  const T value(static_cast<float>(args.factor * *args.dy.data<const float>()));
  exec.pool.ParallelFor(args.dx.num_elements(), kPointwiseGrain,
                        [&](int64_t begin, int64_t end) {
                          std::fill(dx + begin, dx + end, value);
                        });
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::reduce
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::reduce {

ESPALIER_HWY_ROWS(SumCpu, SumArgs, Sum);
ESPALIER_HWY_ROWS(FillCpu, FillArgs, Fill);

}  // namespace espalier::reduce
#endif
