#include "espalier/ops/packed_matmul/packed_matmul.h"

#include <memory>
#include <utility>
#include <vector>

#include "espalier/ops/matmul/frozen_linear.h"
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
  const Tensor x_rows = matmul::AsMatrix(x);
  const Tensor y_rows = matmul::AsMatrix(y);
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

struct PackedLinearNode final : matmul::FrozenLinearNode {
  PackedLinearNode(PackedWeight weight, DType x_dtype,
                   const LinearOptions& options, const Variable& bias)
      : FrozenLinearNode(options, bias),
        weight(std::move(weight)),
        x_dtype(x_dtype) {}
  absl::string_view name() const override { return "packed_linear"; }
  Tensor InputGradient(const Tensor& dy, double alpha) const override {
    Terms terms;
    terms.alpha = alpha;
    return Run("packed_linear.dx", dy, weight,
               packed::Direction::kInputGradient, terms, x_dtype);
  }
  PackedWeight weight;
  DType x_dtype;
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
  return autograd::Record(
      Run("packed_linear", xv, weight, packed::Direction::kForward, terms, out),
      std::make_unique<PackedLinearNode>(weight, xv.dtype(), options, bias),
      {&x, &bias, &addend});
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
