#include "espalier/ops/linear_cross_entropy/linear_cross_entropy.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/autograd/node.h"
#include "espalier/ops/linear_cross_entropy/internal/kernels.h"
#include "espalier/ops/scratch.h"
#include "espalier/ops/split.h"
#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

namespace lce = linear_cross_entropy;

constexpr Kernel<lce::ForwardArgs> kForward[] = {
    {kCpu, kF64, lce::ForwardRef},
    {kCpu, kF32, lce::ForwardCpu},
    {kCpu, kBF16, lce::ForwardCpu},
};
constexpr Kernel<lce::BackwardArgs> kBackward[] = {
    {kCpu, kF64, lce::BackwardRef},
    {kCpu, kF32, lce::BackwardCpu},
    {kCpu, kBF16, lce::BackwardCpu},
};
constexpr Kernel<lce::ScaleArgs> kScale[] = {
    {kCpu, kF64, lce::ScaleRef},
    {kCpu, kF32, lce::ScaleCpu},
    {kCpu, kBF16, lce::ScaleCpu},
};
constexpr Kernel<lce::LogitsArgs> kLogits[] = {
    {kCpu, kF64, lce::LogitsRef},
    {kCpu, kF32, lce::LogitsCpu},
    {kCpu, kBF16, lce::LogitsCpu},
};

lce::Sizes SizesOf(const Tensor& x, const Tensor& weight) {
  return {x.dim(0), x.dim(1), weight.dim(0), x.dtype()};
}

// The weight is frozen: dx was accumulated in the forward pass.
struct ScaledNode final : autograd::Node {
  ScaledNode(Tensor unit_dx, const Tensor& like)
      : unit_dx(std::move(unit_dx)), dtype(like.dtype()) {}
  absl::string_view name() const override { return "linear_cross_entropy"; }
  void ForEachSaved(SavedVisitor visit) override { visit("unit_dx", unit_dx); }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    const Tensor& dloss = dys[0];
    Tensor dx = Tensor::Empty(unit_dx.device(), unit_dx.shape(), dtype);
    Launch("linear_cross_entropy.scale", kScale, dx,
           lce::ScaleArgs{dloss.view(), unit_dx.view(), dx.view()},
           {&dloss, &unit_dx}, {&dx});
    return {std::move(dx), Tensor()};
  }
  Tensor unit_dx;  // [T, H] f32 (f64 for f64)
  DType dtype;     // of x
};

// The weight needs a gradient: what the forward pass kept, and the rest again.
struct TrainedNode final : autograd::Node {
  absl::string_view name() const override { return "linear_cross_entropy"; }
  void ForEachSaved(SavedVisitor visit) override {
    visit("x", x);
    visit("weight", weight);
    visit("labels", labels);
    visit("token_weights", token_weights);
    visit("lse", lse);
    visit("powers", powers);
    visit("block_max", block_max);
  }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    const Tensor& dloss = dys[0];
    Tensor dx = needs_grad(0) ? EmptyLike(x) : Tensor();
    // The powers lie where the gradient goes, unless they were moved away.
    const bool in_place = powers && !powers.read_only();
    Tensor dweight = in_place ? powers : EmptyLike(weight);
    lce::BackwardArgs args{dloss.view(),         x.view(),
                           weight.view(),        labels.view(),
                           token_weights.view(), lse.view(),
                           powers.view(),        block_max.view(),
                           options.ignore_index, options.logit_scale,
                           options.z_loss,       dx.view(),
                           dweight.view()};
    Tensor workspace, dx_sum;
    if (x.dtype() != kF64) {
      args.plan =
          lce::PlanBackward(SizesOf(x, weight), x.device().context().isa());
      workspace = Scratch(x.device(), {args.plan.bytes}, kU8);
      args.workspace = workspace.view();
      if (dx) {
        dx_sum = x.dtype() == kF32 ? dx : Scratch(x.device(), x.shape(), kF32);
      }
      args.dx_sum = dx_sum.view();
    }
    Launch("linear_cross_entropy.backward", kBackward, x, args,
           {&dloss, &x, &weight, &labels, &token_weights, &lse, &powers,
            &block_max},
           {&dx, &dweight, &workspace, &dx_sum});
    return {std::move(dx), std::move(dweight)};
  }
  Tensor x, weight, labels, token_weights, lse;  // [T,H] [V,H] [T] [T] [T]
  Tensor powers, block_max;  // as weight, [V blocks, T]; absent for f64
  LinearCrossEntropyOptions options;
};

void CheckHead(const Tensor& x, const Tensor& weight) {
  ESPALIER_CHECK(x.ndim() == 2 && x.is_contiguous(), "x is ", ToString(x));
  ESPALIER_CHECK(weight.ndim() == 2 && weight.is_contiguous() &&
                     weight.dim(1) == x.dim(1) && weight.dtype() == x.dtype(),
                 "weight is ", ToString(weight), " for x ", ToString(x));
}

void CheckLabels(const Tensor& labels, const Tensor& token_weights,
                 int64_t num_tokens) {
  ESPALIER_CHECK(
      labels.shape() == Shape{num_tokens} && labels.is_contiguous() &&
          (labels.dtype() == kI32 || labels.dtype() == kI64),
      "labels are ", ToString(labels), " for ", num_tokens, " tokens");
  if (!token_weights) return;
  ESPALIER_CHECK(token_weights.shape() == Shape{num_tokens} &&
                     token_weights.is_contiguous() &&
                     token_weights.dtype() == kF32,
                 "token_weights are ", ToString(token_weights), " for ",
                 num_tokens, " tokens");
}

// Labels come with the data, so a bad one is not a contract broken by code.
void CheckLabelValues(const Tensor& labels, int64_t vocab,
                      int64_t ignore_index) {
  if (labels.device().type() == kMeta) return;
  const Tensor host =
      labels.device().host_addressable() ? labels : labels.ToHost();
  const View view = host.view();
  for (int64_t t = 0; t < host.num_elements(); ++t) {
    const int64_t label = lce::LabelAt(view, t);
    if (label == ignore_index || (label >= 0 && label < vocab)) continue;
    internal::Fail(absl::InvalidArgumentError(
        absl::StrCat("label ", label, " at position ", t, ", expected [0, ",
                     vocab, ") or ", ignore_index)));
  }
}

}  // namespace

LinearCrossEntropyResult LinearCrossEntropy(
    const Variable& x, const Variable& weight, const Tensor& labels,
    const Tensor& token_weights, const LinearCrossEntropyOptions& options) {
  const Tensor& xv = x.value();
  const Tensor& wv = weight.value();
  CheckHead(xv, wv);
  CheckLabels(labels, token_weights, xv.dim(0));
  CheckLabelValues(labels, wv.dim(0), options.ignore_index);
  const DType wide = WideOf(xv.dtype());
  Device& device = xv.device();
  const bool trained = autograd::NeedsGrad(weight);
  const bool fused = !trained && autograd::NeedsGrad(x);
  Tensor loss = Tensor::Empty(device, {}, wide);
  Tensor weight_sum = Tensor::Empty(device, {}, wide);
  Tensor token_losses = Tensor::Empty(device, {xv.dim(0)}, wide);
  Tensor lse = Tensor::Empty(device, {xv.dim(0)}, wide);
  Tensor dx = fused ? Tensor::Empty(device, xv.shape(), wide) : Tensor();
  lce::ForwardArgs args{xv.view(),
                        wv.view(),
                        labels.view(),
                        token_weights.view(),
                        options.ignore_index,
                        options.logit_scale,
                        options.z_loss,
                        loss.view(),
                        weight_sum.view(),
                        token_losses.view(),
                        lse.view(),
                        dx.view()};
  Tensor workspace, powers, block_max;
  if (xv.dtype() != kF64) {
    args.plan =
        lce::PlanForward(SizesOf(xv, wv), fused, device.context().isa());
    workspace = Scratch(device, {args.plan.bytes}, kU8);
    args.workspace = workspace.view();
    if (trained) {
      const int64_t block = args.plan.vocab_block;
      powers = EmptyLike(wv);
      block_max =
          Tensor::Empty(device, {CeilDiv(wv.dim(0), block), xv.dim(0)}, kF32);
      args.powers = powers.view();
      args.block_max = block_max.view();
    }
  }
  Launch("linear_cross_entropy", kForward, xv, args,
         {&xv, &wv, &labels, &token_weights},
         {&loss, &weight_sum, &token_losses, &lse, &dx, &workspace, &powers,
          &block_max});
  LinearCrossEntropyResult result;
  result.weight_sum = std::move(weight_sum);
  result.token_losses = std::move(token_losses);
  if (fused) {
    result.loss = autograd::Record(
        std::move(loss), std::make_unique<ScaledNode>(std::move(dx), xv),
        {&x, &weight});
    return result;
  }
  auto node = std::make_unique<TrainedNode>();
  if (trained) {
    node->x = xv;
    node->weight = wv;
    node->labels = labels;
    node->token_weights = token_weights;
    node->lse = std::move(lse);
    node->powers = std::move(powers);
    node->block_max = std::move(block_max);
    node->options = options;
  }
  result.loss =
      autograd::Record(std::move(loss), std::move(node), {&x, &weight});
  return result;
}

Variable Logits(const Variable& x, const Variable& weight, double logit_scale) {
  const Tensor& xv = x.value();
  const Tensor& wv = weight.value();
  CheckHead(xv, wv);
  Tensor logits =
      Tensor::Empty(xv.device(), {xv.dim(0), wv.dim(0)}, WideOf(xv.dtype()));
  lce::LogitsArgs args{xv.view(), wv.view(), logit_scale, logits.view()};
  Tensor workspace;
  if (xv.dtype() != kF64) {
    workspace = Scratch(
        xv.device(),
        {lce::LogitsWorkspaceBytes(args, xv.device().context().isa())}, kU8);
    args.workspace = workspace.view();
  }
  Launch("logits", kLogits, xv, args, {&xv, &wv}, {&logits, &workspace});
  return Variable(std::move(logits));
}

}  // namespace espalier
