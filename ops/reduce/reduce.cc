#include "espalier/ops/reduce/reduce.h"

#include <memory>
#include <utility>
#include <vector>

#include "espalier/autograd/node.h"
#include "espalier/ops/reduce/internal/kernels.h"
#include "espalier/ops/split.h"
#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<reduce::SumArgs> kSum[] = {
    {kCpu, kF64, reduce::SumRef},
    {kCpu, kF32, reduce::SumCpu<float>},
    {kCpu, kBF16, reduce::SumCpu<BFloat16>},
};
constexpr Kernel<reduce::FillArgs> kFill[] = {
    {kCpu, kF64, reduce::FillRef},
    {kCpu, kF32, reduce::FillCpu<float>},
    {kCpu, kBF16, reduce::FillCpu<BFloat16>},
};

struct SumNode final : autograd::Node {
  SumNode(Device& device, const Shape& shape, DType dtype, double factor)
      : device(device), shape(shape), dtype(dtype), factor(factor) {}
  absl::string_view name() const override { return "sum"; }
  void ForEachSaved(SavedVisitor) override {}
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    Tensor dx = Tensor::Empty(device, shape, dtype);
    Launch("sum.backward", kFill, dx,
           reduce::FillArgs{dys[0].view(), factor, dx.view()}, {&dys[0]},
           {&dx});
    return {std::move(dx)};
  }
  Device& device;  // of x, as the rest
  const Shape shape;
  const DType dtype;
  const double factor;
};

Variable ScaledSum(absl::string_view op, const Variable& x, double factor) {
  const Tensor& xv = x.value();
  ESPALIER_CHECK(xv.is_contiguous(), "x is strided ", ToString(xv));
  Tensor y = Tensor::Empty(xv.device(), {}, WideOf(xv.dtype()));
  Tensor pieces;
  {
    const MemoryScope scope(xv.device(), MemoryTag::kWorkspace);
    pieces = Tensor::Empty(xv.device(),
                           {CeilDiv(xv.num_elements(), kPointwiseGrain)},
                           WideOf(xv.dtype()));
  }
  Launch(op, kSum, xv,
         reduce::SumArgs{xv.view(), factor, pieces.view(), y.view()}, {&xv},
         {&pieces, &y});
  return autograd::Record(
      std::move(y),
      std::make_unique<SumNode>(xv.device(), xv.shape(), xv.dtype(), factor),
      {&x});
}

}  // namespace

Variable Sum(const Variable& x) { return ScaledSum("sum", x, 1); }

Variable Mean(const Variable& x) {
  return ScaledSum("mean", x,
                   1 / static_cast<double>(x.value().num_elements()));
}

}  // namespace espalier
