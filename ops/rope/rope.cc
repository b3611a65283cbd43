#include "espalier/ops/rope/rope.h"

#include <memory>
#include <utility>

#include "espalier/autograd/node.h"
#include "espalier/ops/rope/internal/kernels.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<rope::Args> kTurn[] = {
    {kCpu, kF64, rope::Ref},
    {kCpu, kF32, rope::CpuF32},
    {kCpu, kBF16, rope::CpuBF16},
};

Tensor Turn(const Tensor& x, const Tensor& positions, const Tensor& frequencies,
            const RopeOptions& options, bool backward) {
  Tensor y = EmptyLike(x);
  const MemoryScope scope(x.device(), MemoryTag::kWorkspace);
  Tensor tables = Tensor::Empty(x.device(), {x.dim(0), 2, frequencies.dim(0)},
                                x.dtype() == kF64 ? kF64 : kF32);
  rope::Args args;
  args.x = x.view();
  args.positions = positions.view();
  args.frequencies = frequencies.view();
  args.attention_factor = RopeAttentionFactor(options);
  args.interleaved = options.layout == RopeLayout::kInterleaved;
  args.backward = backward;
  args.tables = tables.view();
  args.y = y.view();
  Launch(backward ? "rope.backward" : "rope", kTurn, x, args,
         {&x, &positions, &frequencies}, {&y, &tables});
  return y;
}

struct RopeNode final : autograd::Node {
  RopeNode(Tensor positions, Tensor frequencies, const RopeOptions& options)
      : positions(std::move(positions)),
        frequencies(std::move(frequencies)),
        options(options) {}
  absl::string_view name() const override { return "rope"; }
  void ForEachSaved(SavedVisitor visit) override {
    visit("positions", positions);
    visit("frequencies", frequencies);
  }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dy) override {
    return {Turn(dy[0], positions, frequencies, options, /*backward=*/true)};
  }
  Tensor positions, frequencies;  // [T] i32, [pairs] f64
  const RopeOptions options;
};

}  // namespace

Variable Rope(const Variable& x, const Tensor& positions,
              const RopeOptions& options) {
  const Tensor& xv = x.value();
  ESPALIER_CHECK(xv.ndim() == 3 && xv.is_contiguous(), "x is ", ToString(xv));
  ESPALIER_CHECK(positions.shape() == Shape{xv.dim(0)} &&
                     positions.dtype() == kI32 && positions.is_contiguous(),
                 "positions is ", ToString(positions), " for x ",
                 ToString(xv.shape()));
  ESPALIER_CHECK(options.rotary_dim >= 2 && options.rotary_dim % 2 == 0 &&
                     options.rotary_dim <= xv.dim(2),
                 "rotary_dim is ", options.rotary_dim, " for x ",
                 ToString(xv.shape()));
  const std::vector<double> values = RopeFrequencies(options);
  const Tensor frequencies = Tensor::FromHost<double>(
      xv.device(), {static_cast<int64_t>(values.size())}, values);
  Tensor y = Turn(xv, positions, frequencies, options, /*backward=*/false);
  return autograd::Record(
      std::move(y), std::make_unique<RopeNode>(positions, frequencies, options),
      {&x});
}

}  // namespace espalier
