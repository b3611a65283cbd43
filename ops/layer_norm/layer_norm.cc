#include "espalier/ops/layer_norm/layer_norm.h"

#include <memory>
#include <utility>
#include <vector>

#include "espalier/autograd/node.h"
#include "espalier/ops/layer_norm/internal/kernels.h"
#include "espalier/ops/split.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<layer_norm::ForwardArgs> kForward[] = {
    {kCpu, kF64, layer_norm::ForwardRef},
    {kCpu, kF32, layer_norm::ForwardCpu<float>},
    {kCpu, kBF16, layer_norm::ForwardCpu<BFloat16>},
};
constexpr Kernel<layer_norm::BackwardArgs> kBackward[] = {
    {kCpu, kF64, layer_norm::BackwardRef},
    {kCpu, kF32, layer_norm::BackwardCpu<float>},
    {kCpu, kBF16, layer_norm::BackwardCpu<BFloat16>},
};

struct LayerNormNode final : autograd::Node {
  LayerNormNode(Tensor x, Tensor weight, Tensor mean, Tensor rstd)
      : x(std::move(x)),
        weight(std::move(weight)),
        mean(std::move(mean)),
        rstd(std::move(rstd)) {}
  absl::string_view name() const override { return "layer_norm"; }
  void ForEachSaved(SavedVisitor visit) override {
    visit("x", x);
    visit("weight", weight);
    visit("mean", mean);
    visit("rstd", rstd);
  }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    const Tensor& dy = dys[0];
    Tensor dx = needs_grad(0) ? EmptyLike(x) : Tensor();
    Tensor dweight = needs_grad(1) ? EmptyLike(weight) : Tensor();
    Tensor dbias = needs_grad(2) ? EmptyLike(weight) : Tensor();
    Tensor block_sums;
    if (dweight || dbias) {
      const MemoryScope scope(x.device(), MemoryTag::kWorkspace);
      block_sums = Tensor::Empty(
          x.device(), {NumBlocks(rstd.num_elements()), 2, weight.dim(0)},
          rstd.dtype());
    }
    Launch("layer_norm.backward", kBackward, dy,
           layer_norm::BackwardArgs{
               dy.view(), x.view(), weight.view(), mean.view(), rstd.view(),
               dx.view(), dweight.view(), dbias.view(), block_sums.view()},
           {&dy, &x, &weight, &mean, &rstd},
           {&dx, &dweight, &dbias, &block_sums});
    return {std::move(dx), std::move(dweight), std::move(dbias)};
  }
  Tensor x, weight, mean, rstd;  // [.., H], [H], [rows], [rows]
};

}  // namespace

Variable LayerNorm(const Variable& x, const Variable& weight,
                   const Variable& bias, double eps) {
  const Tensor& xv = x.value();
  const Tensor& wv = weight.value();
  const Tensor bv = bias ? bias.value() : Tensor();
  ESPALIER_CHECK(xv.ndim() >= 1 && xv.is_contiguous(), "x is ", ToString(xv));
  const auto fits = [&](const Tensor& row) {
    return row.shape() == Shape{xv.dim(-1)} && row.dtype() == xv.dtype() &&
           row.is_contiguous();
  };
  ESPALIER_CHECK(fits(wv), "weight is ", ToString(wv), " for x ", ToString(xv));
  ESPALIER_CHECK(!bv || fits(bv), "bias is ", ToString(bv), " for x ",
                 ToString(xv));
  const int64_t rows = xv.dim(-1) == 0 ? 0 : xv.num_elements() / xv.dim(-1);
  Tensor y = EmptyLike(xv);
  Tensor mean = Tensor::Empty(xv.device(), {rows}, WideOf(xv.dtype()));
  Tensor rstd = EmptyLike(mean);
  Launch("layer_norm", kForward, xv,
         layer_norm::ForwardArgs{xv.view(), wv.view(), bv.view(), eps, y.view(),
                                 mean.view(), rstd.view()},
         {&xv, &wv, &bv}, {&y, &mean, &rstd});
  return autograd::Record(std::move(y),
                          std::make_unique<LayerNormNode>(xv, wv, mean, rstd),
                          {&x, &weight, &bias});
}

}  // namespace espalier
