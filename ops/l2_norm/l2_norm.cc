#include "espalier/ops/l2_norm/l2_norm.h"

#include <memory>
#include <utility>
#include <vector>

#include "espalier/autograd/node.h"
#include "espalier/ops/l2_norm/internal/kernels.h"
#include "espalier/ops/split.h"
#include "espalier/runtime/check.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<l2_norm::ForwardArgs> kForward[] = {
    {kCpu, kF64, l2_norm::ForwardRef},
    {kCpu, kF32, l2_norm::ForwardCpu<float>},
    {kCpu, kBF16, l2_norm::ForwardCpu<BFloat16>},
};
constexpr Kernel<l2_norm::BackwardArgs> kBackward[] = {
    {kCpu, kF64, l2_norm::BackwardRef},
    {kCpu, kF32, l2_norm::BackwardCpu<float>},
    {kCpu, kBF16, l2_norm::BackwardCpu<BFloat16>},
};

struct L2NormNode final : autograd::Node {
  L2NormNode(Tensor x, double eps) : x(std::move(x)), eps(eps) {}
  // Returns y and sets rsum, the same bits each time.
  Tensor Forward() {
    const int64_t rows = x.dim(-1) == 0 ? 0 : x.num_elements() / x.dim(-1);
    Tensor y = EmptyLike(x);
    rsum = Tensor::Empty(x.device(), {rows}, WideOf(x.dtype()));
    Launch("l2_norm", kForward, x,
           l2_norm::ForwardArgs{x.view(), eps, y.view(), rsum.view()}, {&x},
           {&y, &rsum});
    return y;
  }
  bool CanRecompute(int) const override { return true; }
  Tensor Recompute(int) override { return Forward(); }
  absl::string_view name() const override { return "l2_norm"; }
  void ForEachSaved(SavedVisitor visit) override {
    visit("x", x);
    visit("rsum", rsum);
  }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    const Tensor& dy = dys[0];
    Tensor dx = EmptyLike(x);
    Launch("l2_norm.backward", kBackward, dy,
           l2_norm::BackwardArgs{dy.view(), x.view(), rsum.view(), dx.view()},
           {&dy, &x, &rsum}, {&dx});
    return {std::move(dx)};
  }
  Tensor x, rsum;  // [.., D], [rows]
  const double eps;
};

}  // namespace

Variable L2Norm(const Variable& x, double eps) {
  const Tensor& xv = x.value();
  ESPALIER_CHECK(xv.ndim() >= 1 && xv.is_contiguous(), "l2_norm: x is ",
                 ToString(xv));
  auto node = std::make_unique<L2NormNode>(xv, eps);
  Tensor y = node->Forward();
  return autograd::Record(std::move(y), std::move(node), {&x});
}

}  // namespace espalier
