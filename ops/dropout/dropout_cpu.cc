#include <algorithm>

#include "espalier/ops/dropout/internal/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/dropout/dropout_cpu.cc"
// The first include sets up the others.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/philox-inl.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::dropout {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

static_assert(kPointwiseGrain % Rng::kBatch == 0);

template <typename T>
void Drop(const Args& args, const Exec& exec) {
  const T* x = args.x.data<const T>();
  T* y = args.y.data<T>();
  const auto factor = static_cast<float>(args.factor);
  const int64_t n = args.y.num_elements();
  ParallelPointwise(
      exec, n, Streams(y, n * int64_t{sizeof(T)}),
      [&](int64_t begin, int64_t size, auto access) {
        const F32Tag d;
        const hn::RebindToUnsigned<F32Tag> du;
        alignas(64) uint32_t bits[Rng::kBatch];
        for (int64_t at = begin; at < begin + size; at += Rng::kBatch) {
          const uint64_t number = args.run.first + static_cast<uint64_t>(at);
          BitsBatch(args.run.rng, number / Rng::kBatch, bits);
          const int64_t count =
              std::min<int64_t>(Rng::kBatch, begin + size - at);
          ForEachVector(count, access, [&](int64_t i, auto io) {
            const auto drops = hn::RebindMask(
                d, hn::Lt(hn::Load(du, bits + i), hn::Set(du, args.threshold)));
            const auto scaled =
                hn::Mul(io.Load(d, x + at + i), hn::Set(d, factor));
            io.Store(d, hn::IfThenZeroElse(drops, scaled), y + at + i);
          });
        }
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::dropout
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::dropout {

ESPALIER_HWY_ROWS(Cpu, Args, Drop);

}  // namespace espalier::dropout
#endif
