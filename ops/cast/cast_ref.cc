#include "espalier/ops/cast/internal/kernels.h"
#include "espalier/ops/split.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::cast {

namespace {

template <typename From, typename To>
void Convert(const Args& args, const Exec& exec) {
  const From* x = args.x.data<const From>();
  To* y = args.y.data<To>();
  exec.pool.ParallelFor(args.x.num_elements(), kPointwiseGrain,
                        [&](int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) {
                            y[i] = static_cast<To>(x[i]);
                          }
                        });
}

template <typename From>
void ConvertFrom(const Args& args, const Exec& exec) {
  switch (args.y.dtype) {
    case kF64:
      return Convert<From, double>(args, exec);
    case kF32:
      return Convert<From, float>(args, exec);
    case kBF16:
      return Convert<From, BFloat16>(args, exec);
    default:
      return Convert<From, Float16>(args, exec);
  }
}

}  // namespace

void Ref(const Args& args, const Exec& exec) {
  switch (args.x.dtype) {
    case kF64:
      return ConvertFrom<double>(args, exec);
    case kF32:
      return ConvertFrom<float>(args, exec);
    case kBF16:
      return ConvertFrom<BFloat16>(args, exec);
    default:
      return ConvertFrom<Float16>(args, exec);
  }
}

}  // namespace espalier::cast
