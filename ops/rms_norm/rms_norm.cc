#include "espalier/ops/rms_norm/rms_norm.h"

#include <memory>
#include <utility>
#include <vector>

#include "espalier/autograd/node.h"
#include "espalier/ops/rms_norm/internal/kernels.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<rms_norm::ForwardArgs> kForward[] = {
    {kCpu, kF64, rms_norm::ForwardRef},
    {kCpu, kF32, rms_norm::ForwardCpuF32},
    {kCpu, kBF16, rms_norm::ForwardCpuBF16},
};
constexpr Kernel<rms_norm::BackwardArgs> kBackward[] = {
    {kCpu, kF64, rms_norm::BackwardRef},
    {kCpu, kF32, rms_norm::BackwardCpuF32},
    {kCpu, kBF16, rms_norm::BackwardCpuBF16},
};

DType WideOf(DType dtype) { return dtype == kF64 ? kF64 : kF32; }

struct RmsNormNode final : autograd::Node {
  RmsNormNode(Tensor x, Tensor weight, Tensor rstd)
      : x(std::move(x)), weight(std::move(weight)), rstd(std::move(rstd)) {}
  absl::string_view name() const override { return "rms_norm"; }
  void ForEachSaved(SavedVisitor visit) override {
    visit("x", x);
    visit("weight", weight);
    visit("rstd", rstd);
  }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    const Tensor& dy = dys[0];
    Tensor dx = needs_grad(0) ? EmptyLike(x) : Tensor();
    Tensor dweight = needs_grad(1) ? EmptyLike(weight) : Tensor();
    Tensor block_sums;
    if (dweight) {
      const MemoryScope scope(x.device(), MemoryTag::kWorkspace);
      block_sums = Tensor::Empty(
          x.device(), {rms_norm::NumBlocks(rstd.num_elements()), weight.dim(0)},
          rstd.dtype());
    }
    Launch(
        "rms_norm.backward", kBackward, dy,
        rms_norm::BackwardArgs{dy.view(), x.view(), weight.view(), rstd.view(),
                               dx.view(), dweight.view(), block_sums.view()},
        {&dy, &x, &weight, &rstd}, {&dx, &dweight, &block_sums});
    return {std::move(dx), std::move(dweight)};
  }
  Tensor x, weight, rstd;  // [.., H], [H], [rows]
};

}  // namespace

Variable RmsNorm(const Variable& x, const Variable& weight, double eps) {
  const Tensor& xv = x.value();
  const Tensor& wv = weight.value();
  ESPALIER_CHECK(xv.ndim() >= 1 && xv.is_contiguous(), "x is ", ToString(xv));
  ESPALIER_CHECK(wv.shape() == Shape{xv.dim(-1)} && wv.is_contiguous(),
                 "weight is ", ToString(wv.shape()), " for x ",
                 ToString(xv.shape()));
  ESPALIER_CHECK(wv.dtype() == xv.dtype(), "weight is ", ToString(wv.dtype()),
                 " for x ", ToString(xv.dtype()));
  const int64_t rows = xv.dim(-1) == 0 ? 0 : xv.num_elements() / xv.dim(-1);
  Tensor y = EmptyLike(xv);
  Tensor rstd = Tensor::Empty(xv.device(), {rows}, WideOf(xv.dtype()));
  Launch(
      "rms_norm", kForward, xv,
      rms_norm::ForwardArgs{xv.view(), wv.view(), eps, y.view(), rstd.view()},
      {&xv, &wv}, {&y, &rstd});
  return autograd::Record(
      std::move(y), std::make_unique<RmsNormNode>(xv, wv, rstd), {&x, &weight});
}

}  // namespace espalier
