#include "espalier/ops/activation/activation.h"

#include <memory>
#include <utility>
#include <vector>

#include "espalier/autograd/node.h"
#include "espalier/ops/activation/internal/kernels.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<activation::ForwardArgs> kForward[] = {
    {kCpu, kF64, activation::ForwardRef},
    {kCpu, kF32, activation::ForwardCpu<float>},
    {kCpu, kBF16, activation::ForwardCpu<BFloat16>},
};
constexpr Kernel<activation::BackwardArgs> kBackward[] = {
    {kCpu, kF64, activation::BackwardRef},
    {kCpu, kF32, activation::BackwardCpu<float>},
    {kCpu, kBF16, activation::BackwardCpu<BFloat16>},
};

Tensor Forward(Activation activation, const Tensor& x) {
  Tensor y = EmptyLike(x);
  Launch("activation", kForward, x,
         activation::ForwardArgs{activation, x.view(), y.view()}, {&x}, {&y});
  return y;
}

struct ActivationNode final : autograd::Node {
  ActivationNode(Activation activation, Tensor x)
      : activation(activation), x(std::move(x)) {}
  absl::string_view name() const override { return "activation"; }
  void ForEachSaved(SavedVisitor visit) override { visit("x", x); }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    const Tensor& dy = dys[0];
    Tensor dx = EmptyLike(x);
    Launch("activation.backward", kBackward, dy,
           activation::BackwardArgs{activation, dy.view(), x.view(), dx.view()},
           {&dy, &x}, {&dx});
    return {std::move(dx)};
  }
  bool CanRecompute(int) const override { return true; }
  Tensor Recompute(int) override { return Forward(activation, x); }
  const Activation activation;
  Tensor x;
};

}  // namespace

Variable Activate(Activation activation, const Variable& x) {
  const Tensor& xv = x.value();
  ESPALIER_CHECK(xv.is_contiguous(), "x is strided ", ToString(xv));
  return autograd::Record(Forward(activation, xv),
                          std::make_unique<ActivationNode>(activation, xv),
                          {&x});
}

}  // namespace espalier
