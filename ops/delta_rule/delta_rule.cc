#include "espalier/ops/delta_rule/delta_rule.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "espalier/autograd/node.h"
#include "espalier/ops/delta_rule/internal/kernels.h"
#include "espalier/ops/scratch.h"
#include "espalier/ops/split.h"
#include "espalier/runtime/check.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

using delta_rule::Plan;

constexpr Kernel<delta_rule::ForwardArgs> kChunkForward[] = {
    {kCpu, kF64, delta_rule::ForwardRef},
    {kCpu, kF32, delta_rule::ForwardCpu},
    {kCpu, kBF16, delta_rule::ForwardCpu},
};
constexpr Kernel<delta_rule::ForwardArgs> kTokenForward[] = {
    {kCpu, kF64, delta_rule::ForwardRef},
    {kCpu, kF32, delta_rule::TokenForwardCpu},
    {kCpu, kBF16, delta_rule::TokenForwardCpu},
};
constexpr Kernel<delta_rule::BackwardArgs> kBackward[] = {
    {kCpu, kF64, delta_rule::BackwardRef},
    {kCpu, kF32, delta_rule::BackwardCpu},
    {kCpu, kBF16, delta_rule::BackwardCpu},
};

delta_rule::Sizes SizesOf(const Tensor& q, const Tensor& v) {
  return {q.dim(0), v.dim(1), q.dim(1), q.dim(2), v.dim(2)};
}

int64_t LongestDocument(const std::vector<int32_t>& at) {
  int32_t longest = 0;
  for (size_t i = 1; i < at.size(); ++i) {
    longest = std::max(longest, at[i] - at[i - 1]);
  }
  return longest;
}

struct DeltaRuleNode final : autograd::Node {
  absl::string_view name() const override { return "delta_rule"; }
  void ForEachSaved(SavedVisitor visit) override {
    visit("q", q);
    visit("k", k);
    visit("v", v);
    visit("g", g);
    visit("beta", beta);
    visit("initial", initial);
    visit("states", states);
  }
  std::shared_ptr<Plan> MakePlan(int64_t rows, bool backward) const {
    return std::make_shared<Plan>(
        delta_rule::MakePlan(SizesOf(q, v), *cu_seqlens, rows, operand,
                             q.device().context().isa(), backward));
  }
  std::vector<Tensor> Forward(DeltaRuleForm form, bool final_state,
                              bool save_states);
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override;

  Tensor q, k, v;  // [T, G, K], [T, G, K], [T, N, V]
  Tensor g, beta;  // [T, N, K] or [T, N], [T, N]
  Tensor initial;  // [documents, N, K, V] or absent
  Tensor states;   // [.., N, K, V]; absent for f64
  CuSeqlens cu_seqlens;
  double scale = 1;
  int64_t chunk = 64;
  DType operand = kF32;
};

// {o, final_state}, the latter absent unless asked for; keeps the states.
std::vector<Tensor> DeltaRuleNode::Forward(DeltaRuleForm form, bool final_state,
                                           bool save_states) {
  Device& device = q.device();
  Tensor o = EmptyLike(v);
  Tensor last;
  const int64_t documents = static_cast<int64_t>(cu_seqlens->size()) - 1;
  const DType wide = WideOf(q.dtype());
  if (final_state) {
    last =
        Tensor::Empty(device, {documents, v.dim(1), q.dim(2), v.dim(2)}, wide);
  }
  delta_rule::ForwardArgs args{
      q.view(),   k.view(), v.view(), g.view(),    beta.view(), initial.view(),
      cu_seqlens, scale,    o.view(), last.view(), {}};
  Tensor slots;
  if (q.dtype() == kF64) {
    slots =
        Scratch(device, {delta_rule::ForwardRefScratch(SizesOf(q, v))}, kF64);
  } else {
    // Tokens one by one are still loaded in tiles, of the least size.
    const std::shared_ptr<Plan> plan =
        MakePlan(form == DeltaRuleForm::kToken ? delta_rule::kTileRows : chunk,
                 /*backward=*/false);
    slots = SlotsOfThreads(device, plan->slot_bytes);
    if (save_states) {
      states = Tensor::Empty(
          device, {plan->num_states, v.dim(1), q.dim(2), v.dim(2)}, kF32);
    }
    args.states = states.view();
    args.plan = plan;
  }
  args.slots = slots.view();
  const auto& kernels =
      form == DeltaRuleForm::kToken ? kTokenForward : kChunkForward;
  Launch("delta_rule", kernels, q, args, {&q, &k, &v, &g, &beta, &initial},
         {&o, &last, &states, &slots});
  std::vector<Tensor> results = {std::move(o)};
  if (final_state) results.push_back(std::move(last));
  return results;
}

std::vector<Tensor> DeltaRuleNode::Backward(absl::Span<const Tensor> dys) {
  Device& device = q.device();
  const Tensor dout = dys[0] ? dys[0] : ZerosLike(v);
  const Tensor dfinal = dys.size() > 1 ? dys[1] : Tensor();
  const auto gradient = [&](size_t input, const Tensor& of) {
    return needs_grad(input) ? EmptyLike(of) : Tensor();
  };
  Tensor dq = gradient(0, q), dk = gradient(1, k), dv = gradient(2, v);
  Tensor dg = gradient(3, g), dbeta = gradient(4, beta);
  Tensor dinitial = gradient(5, initial);
  delta_rule::BackwardArgs args{
      dout.view(), dfinal.view(), q.view(),     k.view(),
      v.view(),    g.view(),      beta.view(),  initial.view(),
      cu_seqlens,  scale,         dq.view(),    dk.view(),
      dv.view(),   dg.view(),     dbeta.view(), dinitial.view(),
      {}};
  Tensor slots, dq_sum, dk_sum;
  if (q.dtype() == kF64) {
    slots = Scratch(device,
                    {delta_rule::BackwardRefScratch(
                        SizesOf(q, v), LongestDocument(*cu_seqlens))},
                    kF64);
  } else {
    args.plan = MakePlan(chunk, /*backward=*/true);
    args.states = states.view();
    slots = SlotsOfThreads(device, args.plan->slot_bytes);
    if (v.dim(1) > q.dim(1)) {
      if (dq) dq_sum = Scratch(device, q.shape(), kF32);
      if (dk) dk_sum = Scratch(device, k.shape(), kF32);
      args.dq_sum = dq_sum.view();
      args.dk_sum = dk_sum.view();
    }
  }
  args.slots = slots.view();
  Launch("delta_rule.backward", kBackward, q, args,
         {&dout, &dfinal, &q, &k, &v, &g, &beta, &initial, &states},
         {&dq, &dk, &dv, &dg, &dbeta, &dinitial, &slots, &dq_sum, &dk_sum});
  return {std::move(dq), std::move(dk),    std::move(dv),
          std::move(dg), std::move(dbeta), std::move(dinitial)};
}

bool Fits(const Tensor& tensor, const Shape& shape, DType dtype) {
  return tensor.shape() == shape && tensor.dtype() == dtype &&
         tensor.is_contiguous();
}

void CheckHeads(const Tensor& q, const Tensor& k, const Tensor& v) {
  ESPALIER_CHECK(
      q.ndim() == 3 && q.is_contiguous() && q.dim(1) > 0 && q.dim(2) > 0,
      "delta_rule: q is ", ToString(q));
  ESPALIER_CHECK(Fits(k, q.shape(), q.dtype()), "delta_rule: k is ",
                 ToString(k), " for q ", ToString(q));
  ESPALIER_CHECK(v.ndim() == 3 && v.is_contiguous() && v.dim(0) == q.dim(0) &&
                     v.dim(1) > 0 && v.dim(2) > 0 && v.dtype() == q.dtype(),
                 "delta_rule: v is ", ToString(v), " for q ", ToString(q));
  ESPALIER_CHECK(v.dim(1) % q.dim(1) == 0, "delta_rule: ", v.dim(1),
                 " value heads for ", q.dim(1), " query heads");
}

void CheckGates(const Tensor& q, const Tensor& v, const Tensor& g,
                const Tensor& beta, const Tensor& initial,
                int64_t num_documents) {
  const DType wide = WideOf(q.dtype());
  ESPALIER_CHECK(Fits(g, {v.dim(0), v.dim(1), q.dim(2)}, wide) ||
                     Fits(g, {v.dim(0), v.dim(1)}, wide),
                 "delta_rule: g is ", ToString(g), " for q ", ToString(q),
                 " and v ", ToString(v));
  ESPALIER_CHECK(Fits(beta, {v.dim(0), v.dim(1)}, wide), "delta_rule: beta is ",
                 ToString(beta), " for v ", ToString(v));
  if (!initial) return;
  const Shape state{num_documents, v.dim(1), q.dim(2), v.dim(2)};
  ESPALIER_CHECK(Fits(initial, state, wide), "delta_rule: initial_state is ",
                 ToString(initial), ", expected ", ToString(wide), " ",
                 ToString(state));
}

}  // namespace

DeltaRuleResult DeltaRule(const Variable& q, const Variable& k,
                          const Variable& v, const Variable& g,
                          const Variable& beta, const Variable& initial_state,
                          const DeltaRuleOptions& options) {
  const Variable inputs[] = {q, k, v, g, beta, initial_state};
  auto node = std::make_unique<DeltaRuleNode>();
  node->q = q.value();
  node->k = k.value();
  node->v = v.value();
  node->g = g.value();
  node->beta = beta.value();
  if (initial_state) node->initial = initial_state.value();
  CheckHeads(node->q, node->k, node->v);
  CheckCuSeqlens("delta_rule", options.cu_seqlens, node->q.dim(0));
  CheckGates(node->q, node->v, node->g, node->beta, node->initial,
             static_cast<int64_t>(options.cu_seqlens->size()) - 1);
  ESPALIER_CHECK(
      options.chunk == 16 || options.chunk == 32 || options.chunk == 64,
      "delta_rule: chunk is ", options.chunk, ", expected 16, 32 or 64");
  node->cu_seqlens = options.cu_seqlens;
  node->scale = options.scale.value_or(
      1 / std::sqrt(static_cast<double>(node->q.dim(2))));
  node->chunk = options.chunk;
  node->operand = options.f32_products ? kF32 : node->q.dtype();
  const bool save =
      autograd::AnyNeedsGrad({&q, &k, &v, &g, &beta, &initial_state});
  std::vector<Tensor> results =
      node->Forward(options.form, options.final_state, save);
  std::vector<Variable> made =
      autograd::RecordMany(std::move(results), std::move(node), inputs);
  return {made[0], options.final_state ? made[1] : Variable()};
}

}  // namespace espalier
