#include "espalier/ops/kda_gate/kda_gate.h"

#include <memory>
#include <utility>
#include <vector>

#include "espalier/autograd/node.h"
#include "espalier/ops/kda_gate/internal/kernels.h"
#include "espalier/ops/scratch.h"
#include "espalier/ops/split.h"
#include "espalier/runtime/check.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<kda_gate::ForwardArgs> kForward[] = {
    {kCpu, kF64, kda_gate::ForwardRef},
    {kCpu, kF32, kda_gate::ForwardCpu<float>},
    {kCpu, kBF16, kda_gate::ForwardCpu<BFloat16>},
};
constexpr Kernel<kda_gate::BackwardArgs> kBackward[] = {
    {kCpu, kF64, kda_gate::BackwardRef},
    {kCpu, kF32, kda_gate::BackwardCpu<float>},
    {kCpu, kBF16, kda_gate::BackwardCpu<BFloat16>},
};

struct KdaGateNode final : autograd::Node {
  KdaGateNode(Tensor f, Tensor A_log, Tensor dt_bias, double bound)
      : f(std::move(f)),
        A_log(std::move(A_log)),
        dt_bias(std::move(dt_bias)),
        bound(bound) {}
  // The same bits each time.
  Tensor Forward() {
    Tensor g = Tensor::Empty(f.device(), f.shape(), WideOf(f.dtype()));
    const Tensor rates =
        Scratch(f.device(), {dt_bias.dim(0)}, WideOf(f.dtype()));
    Launch("kda_gate", kForward, f,
           kda_gate::ForwardArgs{f.view(), A_log.view(), dt_bias.view(), bound,
                                 g.view(), rates.view()},
           {&f, &A_log, &dt_bias}, {&g, &rates});
    return g;
  }
  bool CanRecompute(int) const override { return true; }
  Tensor Recompute(int) override { return Forward(); }
  absl::string_view name() const override { return "kda_gate"; }
  void ForEachSaved(SavedVisitor visit) override {
    visit("f", f);
    visit("A_log", A_log);
    visit("dt_bias", dt_bias);
  }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    const Tensor& dg = dys[0];
    Tensor df = needs_grad(0) ? EmptyLike(f) : Tensor();
    Tensor dA_log = needs_grad(1) ? EmptyLike(A_log) : Tensor();
    Tensor ddt_bias = needs_grad(2) ? EmptyLike(dt_bias) : Tensor();
    const int64_t width = dt_bias.dim(0);
    const Tensor rates = Scratch(f.device(), {width}, WideOf(f.dtype()));
    Tensor block_sums, sums;
    if (dA_log || ddt_bias) {
      block_sums = Scratch(f.device(), {NumBlocks(f.dim(0)), 2, width},
                           WideOf(f.dtype()));
      sums = Scratch(f.device(), {width}, WideOf(f.dtype()));
    }
    Launch("kda_gate.backward", kBackward, f,
           kda_gate::BackwardArgs{dg.view(), f.view(), A_log.view(),
                                  dt_bias.view(), bound, df.view(),
                                  dA_log.view(), ddt_bias.view(), rates.view(),
                                  block_sums.view(), sums.view()},
           {&dg, &f, &A_log, &dt_bias},
           {&df, &dA_log, &ddt_bias, &rates, &block_sums, &sums});
    return {std::move(df), std::move(dA_log), std::move(ddt_bias)};
  }
  Tensor f, A_log, dt_bias;  // [T, N, K] or [T, N], [N], [N * K]
  const double bound;
};

}  // namespace

Variable KdaGate(const Variable& f, const Variable& A_log,
                 const Variable& dt_bias, const KdaGateOptions& options) {
  const Tensor& fv = f.value();
  const Tensor& av = A_log.value();
  const Tensor& bv = dt_bias.value();
  ESPALIER_CHECK(
      (fv.ndim() == 2 || fv.ndim() == 3) && fv.is_contiguous() && fv.dim(1) > 0,
      "kda_gate: f is ", ToString(fv),
      ", expected [T, N, K] or [T, N]"
      " with heads");
  const int64_t width = fv.dim(1) * (fv.ndim() == 3 ? fv.dim(2) : 1);
  const DType wide = WideOf(fv.dtype());
  ESPALIER_CHECK(av.shape() == Shape{fv.dim(1)} && av.dtype() == wide &&
                     av.is_contiguous(),
                 "kda_gate: A_log is ", ToString(av), " for f ", ToString(fv));
  ESPALIER_CHECK(
      bv.shape() == Shape{width} && bv.dtype() == wide && bv.is_contiguous(),
      "kda_gate: dt_bias is ", ToString(bv), " for f ", ToString(fv));
  ESPALIER_CHECK(options.lower_bound <= 0, "kda_gate: lower_bound is ",
                 options.lower_bound);
  auto node = std::make_unique<KdaGateNode>(fv, av, bv, options.lower_bound);
  Tensor g = node->Forward();
  return autograd::Record(std::move(g), std::move(node),
                          {&f, &A_log, &dt_bias});
}

}  // namespace espalier
