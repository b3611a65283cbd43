#include "espalier/ops/packed_matmul/packed_matmul.h"

#include <memory>
#include <utility>
#include <vector>

#include "espalier/autograd/node.h"
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

Tensor Run(absl::string_view op, const Tensor& x, const PackedWeight& weight,
           packed::Direction direction) {
  Device& device = x.device();
  const bool forward = direction == packed::Direction::kForward;
  Tensor y = Tensor::Empty(
      device,
      WithColumns(x, forward ? weight.out_features() : weight.in_features()),
      x.dtype());
  const Tensor x_rows = AsMatrix(x);
  const Tensor y_rows = AsMatrix(y);
  packed::LinearArgs args{
      x_rows.view(), weight.view(), direction, y_rows.view(), {}};
  Tensor workspace;
  if (x.dtype() != kF64) {
    const MemoryScope scope(device, MemoryTag::kWorkspace);
    Context& context = device.context();
    workspace =
        Tensor::Empty(device,
                      {packed::LinearWorkspaceBytes(
                          args, context.isa(), context.pool().num_threads())},
                      kU8);
    args.workspace = workspace.view();
  }
  Launch(op, kLinear, x_rows, args,
         {&x_rows, &weight.codes(), &weight.scales()}, {&y_rows, &workspace});
  return y;
}

struct PackedLinearNode final : autograd::Node {
  explicit PackedLinearNode(PackedWeight weight) : weight(std::move(weight)) {}
  absl::string_view name() const override { return "packed_linear"; }
  // The weight is a parameter held by its module, not memory of the step.
  void ForEachSaved(SavedVisitor) override {}
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    return {Run("packed_linear.dx", dys[0], weight,
                packed::Direction::kInputGradient)};
  }
  PackedWeight weight;
};

}  // namespace

Variable PackedLinear(const Variable& x, const PackedWeight& weight) {
  const Tensor& xv = x.value();
  ESPALIER_CHECK(xv.ndim() >= 1 && xv.is_contiguous() &&
                     xv.dim(-1) == weight.in_features(),
                 "weight is ", ToString(weight), " for x ",
                 ToString(xv.shape()));
  ESPALIER_CHECK(&xv.device() == &weight.device(), "weight is on ",
                 ToString(weight.device().type()), ", x is ", ToString(xv));
  return autograd::Record(
      Run("packed_linear", xv, weight, packed::Direction::kForward),
      std::make_unique<PackedLinearNode>(weight), {&x});
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
