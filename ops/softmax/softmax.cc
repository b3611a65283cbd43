#include "espalier/ops/softmax/softmax.h"

#include <memory>
#include <utility>
#include <vector>

#include "espalier/autograd/node.h"
#include "espalier/ops/softmax/internal/kernels.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<softmax::ForwardArgs> kForward[] = {
    {kCpu, kF64, softmax::ForwardRef},
    {kCpu, kF32, softmax::ForwardCpu<float>},
    {kCpu, kBF16, softmax::ForwardCpu<BFloat16>},
};
constexpr Kernel<softmax::BackwardArgs> kBackward[] = {
    {kCpu, kF64, softmax::BackwardRef},
    {kCpu, kF32, softmax::BackwardCpu<float>},
    {kCpu, kBF16, softmax::BackwardCpu<BFloat16>},
};

struct SoftmaxNode final : autograd::Node {
  explicit SoftmaxNode(Tensor y) : y(std::move(y)) {}
  absl::string_view name() const override { return "softmax"; }
  void ForEachSaved(SavedVisitor visit) override { visit("y", y); }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    const Tensor& dy = dys[0];
    Tensor dx = EmptyLike(y);
    Launch("softmax.backward", kBackward, dy,
           softmax::BackwardArgs{dy.view(), y.view(), dx.view()}, {&dy, &y},
           {&dx});
    return {std::move(dx)};
  }
  Tensor y;  // [.., H]
};

}  // namespace

Variable Softmax(const Variable& x) {
  const Tensor& xv = x.value();
  ESPALIER_CHECK(xv.ndim() >= 1 && xv.is_contiguous(), "x is ", ToString(xv));
  Tensor y = EmptyLike(xv);
  Device& device = xv.device();
  Tensor scratch;
  {
    const MemoryScope scope(device, MemoryTag::kWorkspace);
    scratch = Tensor::Empty(device,
                            {device.context().pool().num_threads(),
                             softmax::ScratchWidth(xv.dim(-1))},
                            kF32);
  }
  Launch("softmax", kForward, xv,
         softmax::ForwardArgs{xv.view(), y.view(), scratch.view()}, {&xv},
         {&y, &scratch});
  return autograd::Record(y, std::make_unique<SoftmaxNode>(y), {&x});
}

}  // namespace espalier
