#include "espalier/autograd/internal/accumulate.h"

#include <utility>

#include "espalier/runtime/kernel.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::internal {

namespace {

struct AddArgs {
  View a, b, sum;  // same shape, contiguous
};

template <typename T, typename Wide>
void AddKernel(const AddArgs& args, const Exec& exec) {
  const T* a = args.a.data<const T>();
  const T* b = args.b.data<const T>();
  T* sum = args.sum.data<T>();
  exec.pool.ParallelFor(args.sum.num_elements(), int64_t{1} << 16,
                        [&](int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) {
                            sum[i] = static_cast<T>(static_cast<Wide>(a[i]) +
                                                    static_cast<Wide>(b[i]));
                          }
                        });
}

constexpr Kernel<AddArgs> kAdd[] = {
    {kCpu, kF64, AddKernel<double, double>},
    {kCpu, kF32, AddKernel<float, float>},
    {kCpu, kBF16, AddKernel<BFloat16, float>},
    {kCpu, kF16, AddKernel<Float16, float>},
};

}  // namespace

void Accumulate(Tensor& sum, Tensor term) {
  if (!sum) {
    sum = std::move(term);
    return;
  }
  ESPALIER_CHECK(sum.shape() == term.shape() && sum.dtype() == term.dtype(),
                 "gradient is ", ToString(sum), ", its next term is ",
                 ToString(term));
  ESPALIER_CHECK(sum.is_contiguous() && term.is_contiguous(),
                 "gradients are contiguous");
  Tensor target = sum.use_count() == 1 ? sum : EmptyLike(sum);
  Launch("accumulate", kAdd, sum,
         AddArgs{sum.view(), term.view(), target.view()}, {&sum, &term},
         {&target});
  sum = std::move(target);
}

}  // namespace espalier::internal
