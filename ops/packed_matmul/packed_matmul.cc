#include "espalier/ops/packed_matmul/packed_matmul.h"

#include <memory>
#include <utility>
#include <vector>

#include "espalier/autograd/node.h"
#include "espalier/ops/matmul/linear_terms.h"
#include "espalier/ops/packed_matmul/internal/kernels.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<packed::LinearArgs> kLinear[] = {
    {kCpu, kF64, packed::LinearRef},
    {kCpu, kF32, packed::LinearCpu},
    {kCpu, kBF16, packed::LinearCpu},
};
// By the dtype of the codes.
constexpr Kernel<packed::PrepareArgs> kPrepare[] = {
    {kCpu, kU8, packed::PrepareCpu},
    {kCpu, kI32, packed::PrepareCpu},
};

// [.., columns] of x's leading dims.
Shape WithColumns(const Tensor& x, int64_t columns) {
  return x.shape().WithDim(-1, columns);
}

Tensor AsMatrix(const Tensor& x) {
  return x.Reshape({x.dim(-1) == 0 ? WithColumns(x, 1).num_elements()
                                   : x.num_elements() / x.dim(-1),
                    x.dim(-1)});
}

struct Terms {
  Tensor bias, addend;  // may be absent
  double alpha = 1;
  double beta = 0;
};

Tensor Run(absl::string_view op, const Tensor& x, const PackedWeight& weight,
           packed::Direction direction, const Terms& terms, DType dtype) {
  Device& device = x.device();
  const bool forward = direction == packed::Direction::kForward;
  Tensor y = Tensor::Empty(
      device,
      WithColumns(x, forward ? weight.out_features() : weight.in_features()),
      dtype);
  const Tensor x_rows = AsMatrix(x);
  const Tensor y_rows = AsMatrix(y);
  packed::LinearArgs args{.x = x_rows.view(),
                          .weight = weight.view(),
                          .direction = direction,
                          .y = y_rows.view(),
                          .workspace = {},
                          .bias = terms.bias.view(),
                          .addend = terms.addend.view(),
                          .alpha = terms.alpha,
                          .beta = terms.addend ? terms.beta : 0};
  Tensor workspace;
  if (dtype != kF64) {
    const MemoryScope scope(device, MemoryTag::kWorkspace);
    Context& context = device.context();
    workspace =
        Tensor::Empty(device,
                      {packed::LinearWorkspaceBytes(
                          args, context.isa(), context.pool().num_threads())},
                      kU8);
    args.workspace = workspace.view();
  }
  Launch(
      op, kLinear, x_rows, args,
      {&x_rows, &weight.codes(), &weight.scales(), &terms.bias, &terms.addend},
      {&y_rows, &workspace});
  return y;
}

struct PackedLinearNode final : autograd::Node {
  explicit PackedLinearNode(PackedWeight weight) : weight(std::move(weight)) {}
  absl::string_view name() const override { return "packed_linear"; }
  // The weight is a parameter held by its module, not memory of the step.
  void ForEachSaved(SavedVisitor) override {}
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    const Tensor& dy = dys[0];
    Tensor dx, dbias, daddend;
    if (needs_grad(0)) {
      Terms terms;
      terms.alpha = options.alpha;
      dx = Run("packed_linear.dx", dy, weight,
               packed::Direction::kInputGradient, terms, x_dtype);
    }
    if (needs_grad(1)) dbias = matmul::BiasGradient(dy, bias_dtype);
    if (needs_grad(2)) daddend = matmul::AddendGradient(dy, options.beta);
    return {std::move(dx), std::move(dbias), std::move(daddend)};
  }
  PackedWeight weight;
  LinearOptions options;
  DType x_dtype = kF32, bias_dtype = kF32;
};

}  // namespace

Variable PackedLinear(const Variable& x, const PackedWeight& weight,
                      const Variable& bias, const LinearOptions& options,
                      const Variable& addend) {
  const Tensor& xv = x.value();
  const DType out = options.out_dtype.value_or(xv.dtype());
  ESPALIER_CHECK(xv.ndim() >= 1 && xv.is_contiguous() &&
                     xv.dim(-1) == weight.in_features(),
                 "weight is ", ToString(weight), " for x ",
                 ToString(xv.shape()));
  ESPALIER_CHECK(&xv.device() == &weight.device(), "weight is on ",
                 ToString(weight.device().type()), ", x is ", ToString(xv));
  ESPALIER_CHECK(
      out == xv.dtype() || (matmul::Narrow(xv.dtype()) && matmul::Narrow(out)),
      "x is ", ToString(xv), ", out ", ToString(out));
  matmul::CheckBias(bias, weight.out_features(), xv);
  matmul::CheckAddend(addend, options.beta,
                      WithColumns(xv, weight.out_features()), out);
  Terms terms;
  terms.alpha = options.alpha;
  terms.beta = options.beta;
  if (bias) terms.bias = bias.value();
  if (addend) terms.addend = addend.value();
  auto node = std::make_unique<PackedLinearNode>(weight);
  node->options = options;
  node->x_dtype = xv.dtype();
  if (bias) node->bias_dtype = bias.dtype();
  return autograd::Record(
      Run("packed_linear", xv, weight, packed::Direction::kForward, terms, out),
      std::move(node), {&x, &bias, &addend});
}

PackedWeight PrepareLanes(const PackedWeight& rows) {
  ESPALIER_CHECK(rows.layout() == PackedLayout::kRows, "weight is ",
                 ToString(rows));
  Device& device = rows.device();
  const MemoryScope scope(device, MemoryTag::kWeights);
  const Tensor codes = Tensor::Empty(device, PackedWeight::LaneCodesShape(rows),
                                     rows.codes().dtype());
  Tensor scales;
  if (rows.format() != PackedFormat::kFp8Block) {
    scales = Tensor::Empty(device, PackedWeight::LaneScalesShape(rows),
                           rows.scales().dtype());
  }
  Launch("packed_linear.prepare", kPrepare, rows.codes(),
         packed::PrepareArgs{rows.view(), codes.view(), scales.view()},
         {&rows.codes(), &rows.scales()}, {&codes, &scales});
  return PackedWeight::FromLanes(rows, codes, scales ? scales : rows.scales());
}

}  // namespace espalier
