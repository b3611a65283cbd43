#include "espalier/ops/short_conv/short_conv.h"

#include <memory>
#include <utility>
#include <vector>

#include "espalier/autograd/node.h"
#include "espalier/ops/scratch.h"
#include "espalier/ops/short_conv/internal/kernels.h"
#include "espalier/ops/split.h"
#include "espalier/runtime/check.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<short_conv::ForwardArgs> kForward[] = {
    {kCpu, kF64, short_conv::ForwardRef},
    {kCpu, kF32, short_conv::ForwardCpu<float>},
    {kCpu, kBF16, short_conv::ForwardCpu<BFloat16>},
};
constexpr Kernel<short_conv::BackwardArgs> kBackward[] = {
    {kCpu, kF64, short_conv::BackwardRef},
    {kCpu, kF32, short_conv::BackwardCpu<float>},
    {kCpu, kBF16, short_conv::BackwardCpu<BFloat16>},
};

struct ShortConvNode final : autograd::Node {
  absl::string_view name() const override { return "short_conv"; }
  void ForEachSaved(SavedVisitor visit) override {
    visit("x", x);
    visit("weight", weight);
    visit("initial", initial);
  }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    const Tensor dy = dys[0] ? dys[0] : ZerosLike(x);
    const Tensor dfinal = dys.size() > 1 ? dys[1] : Tensor();
    Tensor dx = needs_grad(0) ? EmptyLike(x) : Tensor();
    Tensor dweight = needs_grad(1) ? EmptyLike(weight) : Tensor();
    Tensor dinitial = needs_grad(2) ? EmptyLike(initial) : Tensor();
    const Tensor taps =
        Scratch(x.device(), {num_taps, x.dim(1)}, WideOf(x.dtype()));
    Tensor sums;
    if (dweight) {
      sums = Scratch(x.device(), {NumBlocks(x.dim(0)), num_taps, x.dim(1)},
                     WideOf(x.dtype()));
    }
    Launch("short_conv.backward", kBackward, dy,
           short_conv::BackwardArgs{dy.view(), dfinal.view(), x.view(),
                                    weight.view(), initial.view(), cu_seqlens,
                                    num_taps, silu, dx.view(), dweight.view(),
                                    dinitial.view(), taps.view(), sums.view()},
           {&dy, &dfinal, &x, &weight, &initial},
           {&dx, &dweight, &dinitial, &taps, &sums});
    return {std::move(dx), std::move(dweight), std::move(dinitial)};
  }
  Tensor x, weight, initial;  // [T, C], [C, 1, K], [documents, K - 1, C]
  CuSeqlens cu_seqlens;
  int64_t num_taps = 0;
  bool silu = true;
};

void Check(const Tensor& x, const Tensor& weight, const Tensor& initial,
           const ShortConvOptions& options) {
  ESPALIER_CHECK(x.ndim() == 2 && x.is_contiguous(), "short_conv: x is ",
                 ToString(x));
  const bool stored = weight.ndim() == 3 && weight.dim(1) == 1;
  ESPALIER_CHECK(
      (stored || weight.ndim() == 2) && weight.is_contiguous() &&
          weight.dim(0) == x.dim(1) && weight.dim(-1) >= 1 &&
          weight.dim(-1) <= short_conv::kMaxTaps &&
          (weight.dtype() == x.dtype() || weight.dtype() == WideOf(x.dtype())),
      "short_conv: weight is ", ToString(weight), " for x ", ToString(x),
      ", expected [C, 1, K] with K from 1 to ", short_conv::kMaxTaps);
  CheckCuSeqlens("short_conv", options.cu_seqlens, x.dim(0));
  if (!initial) return;
  const Shape state{static_cast<int64_t>(options.cu_seqlens->size()) - 1,
                    weight.dim(-1) - 1, x.dim(1)};
  ESPALIER_CHECK(initial.shape() == state && initial.dtype() == x.dtype() &&
                     initial.is_contiguous(),
                 "short_conv: initial_state is ", ToString(initial),
                 ", expected ", ToString(x.dtype()), " ", ToString(state));
}

}  // namespace

ShortConvResult ShortConv(const Variable& x, const Variable& weight,
                          const Variable& initial_state,
                          const ShortConvOptions& options) {
  const Tensor& xv = x.value();
  const Tensor& wv = weight.value();
  const Tensor initial = initial_state ? initial_state.value() : Tensor();
  Check(xv, wv, initial, options);
  const int64_t num_taps = wv.dim(-1);
  std::vector<Tensor> results = {EmptyLike(xv)};
  if (options.final_state) {
    results.push_back(
        Tensor::Empty(xv.device(),
                      {static_cast<int64_t>(options.cu_seqlens->size()) - 1,
                       num_taps - 1, xv.dim(1)},
                      xv.dtype()));
  }
  const Tensor final_state = options.final_state ? results[1] : Tensor();
  const Tensor taps =
      Scratch(xv.device(), {num_taps, xv.dim(1)}, WideOf(xv.dtype()));
  Launch("short_conv", kForward, xv,
         short_conv::ForwardArgs{
             xv.view(), wv.view(), initial.view(), options.cu_seqlens, num_taps,
             options.silu, results[0].view(), final_state.view(), taps.view()},
         {&xv, &wv, &initial}, {&results[0], &final_state, &taps});
  auto node = std::make_unique<ShortConvNode>();
  node->x = xv;
  node->weight = wv;
  node->initial = initial;
  node->cu_seqlens = options.cu_seqlens;
  node->num_taps = num_taps;
  node->silu = options.silu;
  const Variable inputs[] = {x, weight, initial_state};
  std::vector<Variable> made =
      autograd::RecordMany(std::move(results), std::move(node), inputs);
  return {made[0], options.final_state ? made[1] : Variable()};
}

}  // namespace espalier
