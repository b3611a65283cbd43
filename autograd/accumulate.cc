#include "espalier/autograd/internal/accumulate.h"

#include <algorithm>
#include <utility>

#include "espalier/runtime/kernel.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::internal {

namespace {

constexpr int64_t kGrain = int64_t{1} << 16;

struct AddArgs {
  View a, b, sum;  // same shape, contiguous
};

template <typename T, typename Wide>
void AddKernel(const AddArgs& args, const Exec& exec) {
  const T* a = args.a.data<const T>();
  const T* b = args.b.data<const T>();
  T* sum = args.sum.data<T>();
  exec.pool.ParallelFor(
      args.sum.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          sum[i] =
              static_cast<T>(static_cast<Wide>(a[i]) + static_cast<Wide>(b[i]));
        }
      });
}

constexpr Kernel<AddArgs> kAdd[] = {
    {kCpu, kF64, AddKernel<double, double>},
    {kCpu, kF32, AddKernel<float, float>},
    {kCpu, kBF16, AddKernel<BFloat16, float>},
    {kCpu, kF16, AddKernel<Float16, float>},
};

struct CopyArgs {
  View from, to;  // same shape, contiguous
};

template <typename T>
void CopyKernel(const CopyArgs& args, const Exec& exec) {
  const T* from = args.from.data<const T>();
  T* to = args.to.data<T>();
  exec.pool.ParallelFor(args.to.num_elements(), kGrain,
                        [&](int64_t begin, int64_t end) {
                          std::copy(from + begin, from + end, to + begin);
                        });
}

constexpr Kernel<CopyArgs> kCopy[] = {
    {kCpu, kF64, CopyKernel<double>},
    {kCpu, kF32, CopyKernel<float>},
    {kCpu, kBF16, CopyKernel<BFloat16>},
    {kCpu, kF16, CopyKernel<Float16>},
};

}  // namespace

bool IsExclusive(const Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage_kind() == StorageKind::kHeap;
}

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
  const MemoryScope scope(sum.device(), MemoryTag::kGradients);
  Tensor target = IsExclusive(sum) ? sum : EmptyLike(sum);
  Launch("accumulate", kAdd, sum,
         AddArgs{sum.view(), term.view(), target.view()}, {&sum, &term},
         {&target});
  sum = std::move(target);
}

Tensor Own(Tensor tensor) {
  if (IsExclusive(tensor) && tensor.storage_bytes() == tensor.num_bytes()) {
    return tensor;
  }
  ESPALIER_CHECK(tensor.is_contiguous(), "gradients are contiguous");
  const MemoryScope scope(tensor.device(), MemoryTag::kGradients);
  Tensor copy = EmptyLike(tensor);
  Launch("copy", kCopy, tensor, CopyArgs{tensor.view(), copy.view()}, {&tensor},
         {&copy});
  return copy;
}

}  // namespace espalier::internal
