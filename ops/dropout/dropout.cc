#include "espalier/ops/dropout/dropout.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "espalier/autograd/memo.h"
#include "espalier/autograd/node.h"
#include "espalier/ops/dropout/internal/kernels.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<dropout::Args> kDrop[] = {
    {kCpu, kF64, dropout::Ref},
    {kCpu, kF32, dropout::Cpu<float>},
    {kCpu, kBF16, dropout::Cpu<BFloat16>},
};

Tensor Drop(absl::string_view op, const Tensor& x,
            const autograd::RandomRun& run, double rate) {
  Tensor y = EmptyLike(x);
  const double threshold = std::min(std::round(rate * 0x1p32), 0x1p32 - 1);
  Launch(op, kDrop, x,
         dropout::Args{x.view(), y.view(), run,
                       static_cast<uint32_t>(threshold), 1 / (1 - rate)},
         {&x}, {&y});
  return y;
}

struct DropoutNode final : autograd::Node {
  DropoutNode(const autograd::RandomRun& run, double rate, Tensor x)
      : run(run), rate(rate), x(std::move(x)) {}
  absl::string_view name() const override { return "dropout"; }
  void ForEachSaved(SavedVisitor visit) override { visit("x", x); }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    return {Drop("dropout.backward", dys[0], run, rate)};
  }
  bool CanRecompute(int) const override { return static_cast<bool>(x); }
  Tensor Recompute(int) override { return Drop("dropout", x, run, rate); }
  const autograd::RandomRun run;
  const double rate;
  Tensor x;  // absent unless a region makes the result again
};

}  // namespace

Variable Dropout(const Variable& x, double rate, autograd::RngStream& stream) {
  const Tensor& xv = x.value();
  ESPALIER_CHECK(rate >= 0 && rate < 1, "dropout rate is ", rate);
  ESPALIER_CHECK(xv.is_contiguous(), "x is strided ", ToString(xv));
  if (rate == 0) return x;
  const autograd::RandomRun run =
      stream.Take(static_cast<uint64_t>(xv.num_elements()));
  // Several adapters each drop elements of one x: that is one tensor to save,
  // or none, in place of one for each.
  const Tensor saved = autograd::SavesForRecompute() ? xv : Tensor();
  return autograd::Record(Drop("dropout", xv, run, rate),
                          std::make_unique<DropoutNode>(run, rate, saved),
                          {&x});
}

}  // namespace espalier
