#include "espalier/ops/swiglu/swiglu.h"

#include <memory>
#include <utility>
#include <vector>

#include "espalier/autograd/memo.h"
#include "espalier/autograd/node.h"
#include "espalier/ops/swiglu/internal/kernels.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<swiglu::ForwardArgs> kForward[] = {
    {kCpu, kF64, swiglu::ForwardRef},
    {kCpu, kF32, swiglu::ForwardCpu<float>},
    {kCpu, kBF16, swiglu::ForwardCpu<BFloat16>},
};
constexpr Kernel<swiglu::BackwardArgs> kBackward[] = {
    {kCpu, kF64, swiglu::BackwardRef},
    {kCpu, kF32, swiglu::BackwardCpu<float>},
    {kCpu, kBF16, swiglu::BackwardCpu<BFloat16>},
};

Tensor Forward(Activation activation, const Tensor& gate, const Tensor& up) {
  Tensor y = EmptyLike(gate);
  Launch("gated_activation", kForward, gate,
         swiglu::ForwardArgs{activation, gate.view(), up.view(), y.view()},
         {&gate, &up}, {&y});
  return y;
}

struct GatedActivationNode final : autograd::Node {
  GatedActivationNode(Activation activation, Tensor gate, Tensor up)
      : activation(activation), gate(std::move(gate)), up(std::move(up)) {}
  absl::string_view name() const override { return "gated_activation"; }
  void ForEachSaved(SavedVisitor visit) override {
    visit("gate", gate);
    visit("up", up);
  }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    const Tensor& dy = dys[0];
    Tensor dgate = needs_grad(0) ? EmptyLike(gate) : Tensor();
    Tensor dup = needs_grad(1) ? EmptyLike(gate) : Tensor();
    Launch("gated_activation.backward", kBackward, dy,
           swiglu::BackwardArgs{activation, dy.view(), gate.view(), up.view(),
                                dgate.view(), dup.view()},
           {&dy, &gate, &up}, {&dgate, &dup});
    return {std::move(dgate), std::move(dup)};
  }
  bool CanRecompute(int) const override { return static_cast<bool>(up); }
  Tensor Recompute(int) override { return Forward(activation, gate, up); }
  const Activation activation;
  // up is absent unless gate needs a gradient or a region recomputes.
  Tensor gate, up;
};

}  // namespace

Variable GatedActivation(Activation activation, const Variable& gate,
                         const Variable& up) {
  const Tensor& gv = gate.value();
  const Tensor& uv = up.value();
  ESPALIER_CHECK(gv.is_contiguous() && uv.is_contiguous(), "gate is ",
                 ToString(gv), ", up is ", ToString(uv),
                 ", not both contiguous");
  ESPALIER_CHECK(gv.shape() == uv.shape(), "up is ", ToString(uv.shape()),
                 " for gate ", ToString(gv.shape()));
  ESPALIER_CHECK(gv.dtype() == uv.dtype(), "up is ", ToString(uv.dtype()),
                 " for gate ", ToString(gv.dtype()));
  const bool save_up =
      autograd::NeedsGrad(gate) || autograd::SavesForRecompute();
  return autograd::Record(Forward(activation, gv, uv),
                          std::make_unique<GatedActivationNode>(
                              activation, gv, save_up ? uv : Tensor()),
                          {&gate, &up});
}

}  // namespace espalier
