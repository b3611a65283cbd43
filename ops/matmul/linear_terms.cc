#include "espalier/ops/matmul/linear_terms.h"

#include <cstring>

#include "espalier/ops/elementwise/elementwise.h"
#include "espalier/ops/matmul/internal/kernels.h"
#include "espalier/runtime/kernel.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::matmul {

namespace {

constexpr Kernel<ColumnSumArgs> kColumnSum[] = {
    {kCpu, kF64, ColumnSumRef},
    {kCpu, kF32, ColumnSumCpu},
    {kCpu, kBF16, ColumnSumCpu},
};

}  // namespace

void CheckBias(const Variable& bias, int64_t out_features, const Tensor& x) {
  if (!bias) return;
  const Tensor& value = bias.value();
  ESPALIER_CHECK(
      value.shape() == Shape{out_features} && value.is_contiguous() &&
          (x.dtype() == kF64 ? value.dtype() == kF64 : Narrow(value.dtype())),
      "bias is ", ToString(value), " for ", out_features,
      " output features of x ", ToString(x));
}

void CheckAddend(const Variable& addend, double beta, const Shape& shape,
                 DType dtype) {
  if (!addend) {
    ESPALIER_CHECK(beta == 1, "beta is ", beta, " without an addend");
    return;
  }
  const Tensor& value = addend.value();
  ESPALIER_CHECK(
      value.shape() == shape && value.dtype() == dtype && value.is_contiguous(),
      "addend is ", ToString(value), " for a result ", ToString(dtype), " ",
      ToString(shape));
}

Tensor BiasGradient(const Tensor& dy, DType dtype) {
  Tensor dbias = Tensor::Empty(dy.device(), {dy.dim(-1)}, dtype);
  Launch("linear.dbias", kColumnSum, dy, ColumnSumArgs{dy.view(), dbias.view()},
         {&dy}, {&dbias});
  return dbias;
}

Tensor AddendGradient(const Tensor& dy, double beta) {
  if (beta == 1) return dy;
  if (beta == 0) return Tensor::Zeros(dy.device(), dy.shape(), dy.dtype());
  return Scale(Variable(dy), beta).value();
}

Tensor AsMatrix(const Tensor& x) {
  if (x.ndim() == 2) return x;
  int64_t rows = 1;
  for (int d = 0; d + 1 < x.ndim(); ++d) rows *= x.dim(d);
  return x.Reshape({rows, x.dim(-1)});
}

void CopyAddend(const View& addend, const View& c, const Exec& exec) {
  constexpr int64_t kGrain = int64_t{1} << 18;
  const int64_t bytes = c.num_elements() * SizeOf(c.dtype);
  exec.pool.ParallelFor(bytes, kGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(c.data<char>() + begin, addend.data<char>() + begin,
                static_cast<size_t>(end - begin));
  });
}

}  // namespace espalier::matmul
