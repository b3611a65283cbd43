#include "espalier/ops/reduce/norm.h"

#include <algorithm>
#include <vector>

#include "espalier/ops/split.h"
#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/kernel.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier {

namespace {

struct Args {
  View x;     // contiguous
  View sums;  // [pieces] f64, one per kPointwiseGrain elements
};

template <typename T>
void Sum(const Args& args, const Exec& exec) {
  const T* x = args.x.data<const T>();
  double* sums = args.sums.data<double>();
  exec.pool.ParallelFor(args.x.num_elements(), kPointwiseGrain,
                        [&](int64_t begin, int64_t end) {
                          double lanes[8] = {};
                          for (int64_t i = begin; i < end; ++i) {
                            const auto value = static_cast<double>(x[i]);
                            lanes[i % 8] += value * value;
                          }
                          double sum = 0;
                          for (const double lane : lanes) sum += lane;
                          sums[begin / kPointwiseGrain] = sum;
                        });
}

constexpr Kernel<Args> kSum[] = {
    {kCpu, kF64, Sum<double>},
    {kCpu, kF32, Sum<float>},
    {kCpu, kBF16, Sum<BFloat16>},
};

}  // namespace

double SumOfSquares(const Tensor& x) {
  ESPALIER_CHECK(x.is_contiguous(), "x is strided ", ToString(x));
  const int64_t pieces = CeilDiv(x.num_elements(), kPointwiseGrain);
  const MemoryScope scope(x.device(), MemoryTag::kWorkspace);
  const Tensor sums = Tensor::Empty(x.device(), {pieces}, kF64);
  Launch("sum_of_squares", kSum, x, Args{x.view(), sums.view()}, {&x}, {&sums});
  double total = 0;
  for (const double sum : ToDoubles(sums)) total += sum;
  return total;
}

}  // namespace espalier
