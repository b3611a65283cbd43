#include "espalier/ops/cast/internal/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "espalier/ops/cast/cast_cpu.cc"
// The first include sets up the second.
// clang-format off
#include "espalier/ops/highway.h"
#include "espalier/ops/pointwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::cast {
namespace HWY_NAMESPACE {

// NOLINTNEXTLINE(google-build-using-namespace): this set's own helpers
using namespace espalier::HWY_NAMESPACE;

template <typename From, typename To>
void Convert(const Args& args, const Exec& exec) {
  const F32Tag d;
  const From* x = args.x.data<const From>();
  To* y = args.y.data<To>();
  const int64_t n = args.x.num_elements();
  ParallelPointwise(exec, n, Streams(y, n * int64_t{sizeof(To)}),
                    [&](int64_t begin, int64_t count, auto access) {
                      access.native = false;  // keeps subnormal numbers
                      ForEachVector(count, access, [&](int64_t i, auto io) {
                        io.Store(d, io.Load(d, x + begin + i), y + begin + i);
                      });
                    });
}

void F32ToBF16(const Args& args, const Exec& exec) {
  Convert<float, BFloat16>(args, exec);
}
void BF16ToF32(const Args& args, const Exec& exec) {
  Convert<BFloat16, float>(args, exec);
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier::cast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier::cast {

void CpuF32ToBF16(const Args& args, const Exec& exec) {
  ESPALIER_HWY_CALL(exec.isa, F32ToBF16)(args, exec);
}
void CpuBF16ToF32(const Args& args, const Exec& exec) {
  ESPALIER_HWY_CALL(exec.isa, BF16ToF32)(args, exec);
}

}  // namespace espalier::cast
#endif
