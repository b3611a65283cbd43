#include "espalier/ops/rope/rope.h"

#include <memory>
#include <utility>

#include "espalier/autograd/node.h"
#include "espalier/ops/rope/internal/kernels.h"
#include "espalier/ops/split.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<rope::TableArgs> kTable[] = {
    {kCpu, kF64, rope::MakeTable<double>},
    {kCpu, kF32, rope::MakeTable<float>},
};
constexpr Kernel<rope::TurnArgs> kTurn[] = {
    {kCpu, kF64, rope::TurnRef},
    {kCpu, kF32, rope::TurnCpu<float>},
    {kCpu, kBF16, rope::TurnCpu<BFloat16>},
};

Tensor Turn(const Tensor& x, const Tensor& turns, RopeLayout layout,
            bool backward) {
  Tensor y = EmptyLike(x);
  Launch(backward ? "rope.backward" : "rope", kTurn, x,
         rope::TurnArgs{x.view(), turns.view(),
                        layout == RopeLayout::kInterleaved, backward, y.view()},
         {&x, &turns}, {&y});
  return y;
}

struct RopeNode final : autograd::Node {
  RopeNode(Tensor turns, RopeLayout layout)
      : turns(std::move(turns)), layout(layout) {}
  absl::string_view name() const override { return "rope"; }
  void ForEachSaved(SavedVisitor visit) override { visit("turns", turns); }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dy) override {
    return {Turn(dy[0], turns, layout, /*backward=*/true)};
  }
  Tensor turns;  // [T, 2, pairs]
  const RopeLayout layout;
};

}  // namespace

RopeTable MakeRopeTable(const Tensor& positions, const RopeOptions& options,
                        DType dtype) {
  ESPALIER_CHECK(positions.ndim() == 1 && positions.is_contiguous() &&
                     (positions.dtype() == kI32 || positions.dtype() == kI64),
                 "positions is ", ToString(positions));
  ESPALIER_CHECK(options.rotary_dim >= 2 && options.rotary_dim % 2 == 0,
                 "rotary_dim is ", options.rotary_dim);
  Device& device = positions.device();
  const std::vector<double> values = RopeFrequencies(options);
  const int64_t pairs = static_cast<int64_t>(values.size());
  const Tensor frequencies = Tensor::FromHost<double>(device, {pairs}, values);
  RopeTable table;
  table.layout = options.layout;
  table.turns = Tensor::Empty(device, {positions.dim(0), 2, pairs}, dtype);
  Launch("rope.table", kTable, table.turns,
         rope::TableArgs{positions.view(), frequencies.view(),
                         RopeAttentionFactor(options), table.turns.view()},
         {&positions, &frequencies}, {&table.turns});
  return table;
}

Variable Rope(const Variable& x, const RopeTable& table) {
  const Tensor& xv = x.value();
  const Tensor& turns = table.turns;
  ESPALIER_CHECK(xv.ndim() == 3 && xv.is_contiguous(), "x is ", ToString(xv));
  ESPALIER_CHECK(turns && turns.dim(0) == xv.dim(0) &&
                     2 * turns.dim(2) <= xv.dim(2) &&
                     turns.dtype() == WideOf(xv.dtype()),
                 "table is ", ToString(turns), " for x ", ToString(xv));
  return autograd::Record(Turn(xv, turns, table.layout, /*backward=*/false),
                          std::make_unique<RopeNode>(turns, table.layout),
                          {&x});
}

Variable Rope(const Variable& x, const Tensor& positions,
              const RopeOptions& options) {
  ESPALIER_CHECK(
      x.value().ndim() == 3 && positions.shape() == Shape{x.value().dim(0)},
      "positions is ", ToString(positions), " for x ", ToString(x.shape()));
  return Rope(x, MakeRopeTable(positions, options, WideOf(x.value().dtype())));
}

}  // namespace espalier
