#include "espalier/ops/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "espalier/autograd/node.h"
#include "espalier/ops/attention/internal/kernels.h"
#include "espalier/ops/scratch.h"
#include "espalier/ops/split.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

using attention::Mask;

constexpr Kernel<attention::ForwardArgs> kForward[] = {
    {kCpu, kF64, attention::ForwardRef},
    {kCpu, kF32, attention::ForwardCpu},
    {kCpu, kBF16, attention::ForwardCpu},
};
constexpr Kernel<attention::BackwardArgs> kBackward[] = {
    {kCpu, kF64, attention::BackwardRef},
    {kCpu, kF32, attention::BackwardCpu},
    {kCpu, kBF16, attention::BackwardCpu},
};

attention::Sizes SizesOf(const Tensor& q, const Tensor& k, const Tensor& v) {
  return {q.dim(0), q.dim(1), k.dim(1), q.dim(2), v.dim(2)};
}

// f32 sums for a gradient: the gradient itself when that is f32.
Tensor Sums(const Tensor& gradient) {
  if (!gradient || gradient.dtype() == kF32) return gradient;
  return Scratch(gradient.device(), gradient.shape(), kF32);
}

struct AttentionNode final : autograd::Node {
  absl::string_view name() const override { return "attention"; }
  void ForEachSaved(SavedVisitor visit) override {
    visit("q", q);
    visit("k", k);
    visit("v", v);
    visit("sinks", sinks);
    visit("o", o);
    visit("lse", lse);
  }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    const Tensor& dout = dys[0];
    Tensor dq = needs_grad(0) ? EmptyLike(q) : Tensor();
    Tensor dk = needs_grad(1) ? EmptyLike(k) : Tensor();
    Tensor dv = needs_grad(2) ? EmptyLike(v) : Tensor();
    Tensor dsinks = needs_grad(3) ? EmptyLike(sinks) : Tensor();
    attention::BackwardArgs args{
        dout.view(), q.view(),   k.view(),     v.view(), sinks.view(),
        o.view(),    lse.view(), cu_seqlens,   mask,     dq.view(),
        dk.view(),   dv.view(),  dsinks.view()};
    Tensor slots, delta, dq_sum, dk_sum, dv_sum;
    if (q.dtype() != kF64) {
      args.plan = std::make_shared<attention::BackwardPlan>(
          attention::PlanBackward(SizesOf(q, k, v), mask, *cu_seqlens,
                                  q.dtype(), q.device().context().isa()));
      slots = SlotsOfThreads(q.device(), args.plan->slot_bytes);
      delta = EmptyLike(lse);
      dq_sum = Sums(dq);
      dk_sum = Sums(dk);
      dv_sum = Sums(dv);
      args.slots = slots.view();
      args.delta = delta.view();
      args.dq_sum = dq_sum.view();
      args.dk_sum = dk_sum.view();
      args.dv_sum = dv_sum.view();
    }
    Launch("attention.backward", kBackward, dout, args,
           {&dout, &q, &k, &v, &sinks, &o, &lse},
           {&dq, &dk, &dv, &dsinks, &slots, &delta, &dq_sum, &dk_sum, &dv_sum});
    return {std::move(dq), std::move(dk), std::move(dv), std::move(dsinks)};
  }
  Tensor q, k, v, sinks;  // [T, N, Dqk], [T, G, Dqk], [T, G, Dv], [N]
  Tensor o, lse;          // [T, N, Dv], [N, T]
  CuSeqlens cu_seqlens;
  Mask mask;
};

void CheckShapes(const Tensor& q, const Tensor& k, const Tensor& v) {
  ESPALIER_CHECK(q.ndim() == 3 && q.is_contiguous(), "q is ", ToString(q));
  ESPALIER_CHECK(q.dim(1) > 0 && q.dim(2) > 0, "q is ", ToString(q),
                 ": no heads, or heads without a width");
  ESPALIER_CHECK(k.ndim() == 3 && k.is_contiguous() && k.dim(0) == q.dim(0) &&
                     k.dim(2) == q.dim(2) && k.dtype() == q.dtype(),
                 "k is ", ToString(k), " for q ", ToString(q));
  ESPALIER_CHECK(v.ndim() == 3 && v.is_contiguous() && v.dim(0) == k.dim(0) &&
                     v.dim(1) == k.dim(1) && v.dtype() == q.dtype(),
                 "v is ", ToString(v), " for k ", ToString(k));
  ESPALIER_CHECK(k.dim(1) > 0 && q.dim(1) % k.dim(1) == 0, q.dim(1),
                 " query heads for ", k.dim(1), " key/value heads");
}

void CheckSinks(const Variable& sinks, const Tensor& q) {
  if (!sinks) return;
  const Tensor& value = sinks.value();
  ESPALIER_CHECK(
      value.shape() == Shape{q.dim(1)} && value.is_contiguous() &&
          (value.dtype() == q.dtype() || value.dtype() == WideOf(q.dtype())),
      "sinks are ", ToString(value), " for q ", ToString(q));
}

// {o, lse} of a node whose inputs and mask are set.
std::vector<Tensor> Forward(const AttentionNode& node) {
  const Tensor& q = node.q;
  Tensor o =
      Tensor::Empty(q.device(), {q.dim(0), q.dim(1), node.v.dim(2)}, q.dtype());
  Tensor lse =
      Tensor::Empty(q.device(), {q.dim(1), q.dim(0)}, WideOf(q.dtype()));
  attention::ForwardArgs args{q.view(),          node.k.view(),   node.v.view(),
                              node.sinks.view(), node.cu_seqlens, node.mask,
                              o.view(),          lse.view()};
  Tensor slots;
  if (q.dtype() != kF64) {
    args.plan = std::make_shared<attention::ForwardPlan>(
        attention::PlanForward(SizesOf(q, node.k, node.v), *node.cu_seqlens,
                               q.dtype(), q.device().context().isa()));
    slots = SlotsOfThreads(q.device(), args.plan->slot_bytes);
    args.slots = slots.view();
  }
  Launch("attention", kForward, q, args, {&q, &node.k, &node.v, &node.sinks},
         {&o, &lse, &slots});
  return {std::move(o), std::move(lse)};
}

}  // namespace

Variable Attention(const Variable& q, const Variable& k, const Variable& v,
                   const AttentionOptions& options, const Variable& sinks) {
  const Tensor& qv = q.value();
  CheckShapes(qv, k.value(), v.value());
  CheckSinks(sinks, qv);
  CheckCuSeqlens("attention", options.cu_seqlens, qv.dim(0));
  ESPALIER_CHECK(options.window >= 0, "window is ", options.window);
  ESPALIER_CHECK(options.soft_cap >= 0, "soft_cap is ", options.soft_cap);
  auto node = std::make_unique<AttentionNode>();
  node->q = qv;
  node->k = k.value();
  node->v = v.value();
  if (sinks) node->sinks = sinks.value();
  node->cu_seqlens = options.cu_seqlens;
  node->mask.causal = options.causal;
  // A window of T tokens is all of them; t + window cannot overflow.
  node->mask.window = std::min(options.window, qv.dim(0));
  node->mask.soft_cap = options.soft_cap;
  node->mask.scale =
      options.scale.value_or(1 / std::sqrt(static_cast<double>(qv.dim(2))));
  std::vector<Tensor> results = Forward(*node);
  node->o = results[0];
  node->lse = std::move(results[1]);
  return autograd::Record(std::move(results[0]), std::move(node),
                          {&q, &k, &v, &sinks});
}

}  // namespace espalier
