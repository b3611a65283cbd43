#include "espalier/ops/grouped_matmul/grouped_matmul.h"

#include <memory>
#include <utility>

#include "espalier/autograd/node.h"
#include "espalier/ops/grouped_matmul/internal/kernels.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

using grouped_matmul::Form;

constexpr Kernel<grouped_matmul::Args> kGrouped[] = {
    {kCpu, kF64, grouped_matmul::GroupedRef},
    {kCpu, kF32, grouped_matmul::GroupedCpu},
    {kCpu, kBF16, grouped_matmul::GroupedCpu},
};

// The groups' weights: dense, or packed ones.
struct Weights {
  Tensor dense;  // [E, out, in]
  std::vector<PackedWeight> packed;
};

void Run(absl::string_view op, Form form, const Tensor& a, const Tensor& b,
         const std::vector<PackedWeight>& packed,
         const std::vector<int64_t>& offsets, const Tensor& c) {
  Device& device = c.device();
  grouped_matmul::Args args;
  args.form = form;
  args.a = a.view();
  args.b = b.view();
  args.c = c.view();
  for (const PackedWeight& weight : packed)
    args.packed.push_back(weight.view());
  args.offsets = offsets;
  Tensor workspace;
  if (a.dtype() != kF64) {
    const MemoryScope scope(device, MemoryTag::kWorkspace);
    Context& context = device.context();
    workspace =
        Tensor::Empty(device,
                      {grouped_matmul::WorkspaceBytes(
                          args, context.isa(), context.pool().num_threads())},
                      kU8);
    args.workspace = workspace.view();
  }
  Launch(op, kGrouped, a, args, {&a, &b}, {&c, &workspace});
}

struct GroupedMatMulNode final : autograd::Node {
  absl::string_view name() const override { return "grouped_matmul"; }
  void ForEachSaved(SavedVisitor visit) override {
    visit("x", x);
    visit("weight", weights.dense);
  }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    const Tensor& dy = dys[0];
    std::vector<Tensor> gradients;
    gradients.emplace_back();
    if (needs_grad(0)) {
      gradients[0] = Tensor::Empty(dy.device(), x_shape, x_dtype);
      Run("grouped_matmul.dx", Form::kInputGradient, dy, weights.dense,
          weights.packed, offsets, gradients[0]);
    }
    if (!weights.packed.empty()) return gradients;
    gradients.emplace_back();
    if (needs_grad(1)) {
      gradients[1] = Tensor::Empty(dy.device(), weight_shape, weight_dtype);
      Run("grouped_matmul.dweight", Form::kWeightGradient, dy, x, {}, offsets,
          gradients[1]);
    }
    return gradients;
  }

  std::vector<int64_t> offsets;
  Shape x_shape, weight_shape;
  DType x_dtype = kF32, weight_dtype = kF32;
  Tensor x;         // [T, in], for dweight
  Weights weights;  // for dx; packed ones are their module's, not saved memory
};

void CheckOffsets(absl::Span<const int64_t> offsets, int64_t num_experts,
                  int64_t num_rows) {
  ESPALIER_CHECK(static_cast<int64_t>(offsets.size()) == num_experts + 1,
                 offsets.size(), " offsets for ", num_experts, " experts");
  ESPALIER_CHECK(offsets.front() == 0 && offsets.back() == num_rows,
                 "offsets from ", offsets.front(), " to ", offsets.back(),
                 " for ", num_rows, " rows");
  for (size_t e = 0; e + 1 < offsets.size(); ++e) {
    ESPALIER_CHECK(offsets[e] <= offsets[e + 1], "offset ", e + 1, " is ",
                   offsets[e + 1], " after ", offsets[e]);
  }
}

bool Narrow(DType dtype) { return dtype == kF32 || dtype == kBF16; }

std::unique_ptr<GroupedMatMulNode> MakeNode(const Tensor& x,
                                            absl::Span<const int64_t> offsets) {
  auto node = std::make_unique<GroupedMatMulNode>();
  node->offsets.assign(offsets.begin(), offsets.end());
  node->x_shape = x.shape();
  node->x_dtype = x.dtype();
  return node;
}

}  // namespace

Variable GroupedMatMul(const Variable& x, const Variable& weight,
                       absl::Span<const int64_t> expert_offsets,
                       std::optional<DType> out_dtype) {
  const Tensor& xv = x.value();
  const Tensor& wv = weight.value();
  const DType out = out_dtype.value_or(xv.dtype());
  ESPALIER_CHECK(xv.ndim() == 2 && xv.is_contiguous() && wv.ndim() == 3 &&
                     wv.is_contiguous() && wv.dim(2) == xv.dim(1),
                 "weight is ", ToString(wv.shape()), " for x ",
                 ToString(xv.shape()));
  const bool all_f64 = xv.dtype() == kF64 && wv.dtype() == kF64 && out == kF64;
  ESPALIER_CHECK(
      all_f64 || (Narrow(xv.dtype()) && Narrow(wv.dtype()) && Narrow(out)),
      "x is ", ToString(xv), ", weight is ", ToString(wv), ", out ",
      ToString(out));
  CheckOffsets(expert_offsets, wv.dim(0), xv.dim(0));
  auto node = MakeNode(xv, expert_offsets);
  node->weight_shape = wv.shape();
  node->weight_dtype = wv.dtype();
  if (autograd::NeedsGrad(weight)) node->x = xv;
  if (autograd::NeedsGrad(x)) node->weights.dense = wv;
  const Tensor y = Tensor::Empty(xv.device(), {xv.dim(0), wv.dim(1)}, out);
  Run("grouped_matmul", Form::kForward, xv, wv, {}, node->offsets, y);
  return autograd::Record(y, std::move(node), {&x, &weight});
}

Variable GroupedMatMul(const Variable& x,
                       absl::Span<const PackedWeight> weights,
                       absl::Span<const int64_t> expert_offsets) {
  const Tensor& xv = x.value();
  ESPALIER_CHECK(!weights.empty(), "no weights for x ", ToString(xv.shape()));
  const int64_t out = weights[0].out_features();
  for (const PackedWeight& weight : weights) {
    ESPALIER_CHECK(xv.ndim() == 2 && xv.is_contiguous() &&
                       weight.in_features() == xv.dim(1) &&
                       weight.out_features() == out,
                   "weight is ", ToString(weight), " beside ",
                   ToString(weights[0]), " for x ", ToString(xv.shape()));
    ESPALIER_CHECK(&xv.device() == &weight.device(), "weight is on ",
                   ToString(weight.device().type()), ", x is ", ToString(xv));
  }
  CheckOffsets(expert_offsets, static_cast<int64_t>(weights.size()), xv.dim(0));
  auto node = MakeNode(xv, expert_offsets);
  node->weights.packed.assign(weights.begin(), weights.end());
  const Tensor y = Tensor::Empty(xv.device(), {xv.dim(0), out}, xv.dtype());
  Run("grouped_matmul", Form::kForward, xv, {}, node->weights.packed,
      node->offsets, y);
  return autograd::Record(y, std::move(node), {&x});
}

std::vector<int64_t> HostOffsets(const Tensor& expert_offsets) {
  ESPALIER_CHECK(expert_offsets.ndim() == 1 && expert_offsets.dtype() == kI64,
                 "expert offsets are ", ToString(expert_offsets));
  const Tensor host = expert_offsets.ToHost();
  const int64_t* data = host.data<int64_t>();
  return {data, data + host.num_elements()};
}

}  // namespace espalier
