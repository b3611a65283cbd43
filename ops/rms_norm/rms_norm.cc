#include "espalier/ops/rms_norm/rms_norm.h"

#include <memory>
#include <utility>
#include <vector>

#include "espalier/autograd/node.h"
#include "espalier/ops/rms_norm/internal/kernels.h"
#include "espalier/ops/split.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<rms_norm::ForwardArgs> kForward[] = {
    {kCpu, kF64, rms_norm::ForwardRef},
    {kCpu, kF32, rms_norm::ForwardCpu<float>},
    {kCpu, kBF16, rms_norm::ForwardCpu<BFloat16>},
};
constexpr Kernel<rms_norm::BackwardArgs> kBackward[] = {
    {kCpu, kF64, rms_norm::BackwardRef},
    {kCpu, kF32, rms_norm::BackwardCpu<float>},
    {kCpu, kBF16, rms_norm::BackwardCpu<BFloat16>},
};

struct RmsNormNode final : autograd::Node {
  RmsNormNode(Tensor x, Tensor weight, Tensor gate, double eps, NormWeight form,
              NormGate activation)
      : x(std::move(x)),
        weight(std::move(weight)),
        gate(std::move(gate)),
        eps(eps),
        form(form),
        activation(activation) {}
  // Returns y and sets rstd, the same bits each time.
  Tensor Forward() {
    const int64_t rows = x.dim(-1) == 0 ? 0 : x.num_elements() / x.dim(-1);
    Tensor y = EmptyLike(x);
    rstd = Tensor::Empty(x.device(), {rows}, WideOf(x.dtype()));
    Launch("rms_norm", kForward, x,
           rms_norm::ForwardArgs{x.view(), weight.view(), gate.view(), eps,
                                 form, activation, y.view(), rstd.view()},
           {&x, &weight, &gate}, {&y, &rstd});
    return y;
  }
  bool CanRecompute(int) const override { return true; }
  Tensor Recompute(int) override { return Forward(); }
  absl::string_view name() const override { return "rms_norm"; }
  void ForEachSaved(SavedVisitor visit) override {
    visit("x", x);
    visit("weight", weight);
    visit("gate", gate);
    visit("rstd", rstd);
  }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    const Tensor& dy = dys[0];
    Tensor dx = needs_grad(0) ? EmptyLike(x) : Tensor();
    Tensor dweight = needs_grad(1) ? EmptyLike(weight) : Tensor();
    Tensor dgate = gate && needs_grad(2) ? EmptyLike(gate) : Tensor();
    Tensor block_sums;
    if (dweight) {
      const MemoryScope scope(x.device(), MemoryTag::kWorkspace);
      block_sums = Tensor::Empty(
          x.device(), {NumBlocks(rstd.num_elements()), weight.dim(0)},
          rstd.dtype());
    }
    Launch(
        "rms_norm.backward", kBackward, dy,
        rms_norm::BackwardArgs{dy.view(), x.view(), weight.view(), gate.view(),
                               rstd.view(), form, activation, dx.view(),
                               dweight.view(), dgate.view(), block_sums.view()},
        {&dy, &x, &weight, &gate, &rstd}, {&dx, &dweight, &dgate, &block_sums});
    std::vector<Tensor> gradients = {std::move(dx), std::move(dweight)};
    if (gate) gradients.push_back(std::move(dgate));
    return gradients;
  }
  Tensor x, weight, gate, rstd;  // [.., H], [H], [.., H] or absent, [rows]
  const double eps;
  const NormWeight form;
  const NormGate activation;
};

Variable Norm(const Variable& x, const Variable& weight, const Variable* gate,
              double eps, NormGate activation, NormWeight form) {
  const Tensor& xv = x.value();
  const Tensor& wv = weight.value();
  const Tensor gv = gate != nullptr ? gate->value() : Tensor();
  ESPALIER_CHECK(xv.ndim() >= 1 && xv.is_contiguous(), "x is ", ToString(xv));
  ESPALIER_CHECK(wv.shape() == Shape{xv.dim(-1)} && wv.is_contiguous(),
                 "weight is ", ToString(wv.shape()), " for x ",
                 ToString(xv.shape()));
  ESPALIER_CHECK(wv.dtype() == xv.dtype() || wv.dtype() == WideOf(xv.dtype()),
                 "weight is ", ToString(wv.dtype()), " for x ",
                 ToString(xv.dtype()));
  ESPALIER_CHECK(!gv || (gv.shape() == xv.shape() && gv.dtype() == xv.dtype() &&
                         gv.is_contiguous()),
                 "gate is ", ToString(gv), " for x ", ToString(xv));
  auto node = std::make_unique<RmsNormNode>(xv, wv, gv, eps, form, activation);
  Tensor y = node->Forward();
  if (gate == nullptr) {
    return autograd::Record(std::move(y), std::move(node), {&x, &weight});
  }
  return autograd::Record(std::move(y), std::move(node), {&x, &weight, gate});
}

}  // namespace

Variable RmsNorm(const Variable& x, const Variable& weight, double eps,
                 NormWeight form) {
  return Norm(x, weight, nullptr, eps, NormGate::kSilu, form);
}

Variable GatedRmsNorm(const Variable& x, const Variable& weight,
                      const Variable& gate, double eps, NormGate activation,
                      NormWeight form) {
  return Norm(x, weight, &gate, eps, activation, form);
}

}  // namespace espalier
