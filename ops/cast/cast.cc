#include "espalier/ops/cast/cast.h"

#include <memory>
#include <utility>

#include "espalier/autograd/memo.h"
#include "espalier/autograd/node.h"
#include "espalier/ops/cast/internal/kernels.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<cast::Args> kToF64[] = {
    {kCpu, kF32, cast::Ref}, {kCpu, kBF16, cast::Ref}, {kCpu, kF16, cast::Ref}};
constexpr Kernel<cast::Args> kToF32[] = {{kCpu, kF64, cast::Ref},
                                         {kCpu, kBF16, cast::CpuBF16ToF32},
                                         {kCpu, kF16, cast::Ref}};
constexpr Kernel<cast::Args> kToBF16[] = {{kCpu, kF64, cast::Ref},
                                          {kCpu, kF32, cast::CpuF32ToBF16},
                                          {kCpu, kF16, cast::Ref}};
constexpr Kernel<cast::Args> kToF16[] = {
    {kCpu, kF64, cast::Ref}, {kCpu, kF32, cast::Ref}, {kCpu, kBF16, cast::Ref}};

struct CastNode final : autograd::Node {
  CastNode(DType from, DType to, Tensor x)
      : from(from), to(to), x(std::move(x)) {}
  absl::string_view name() const override { return "cast"; }
  void ForEachSaved(SavedVisitor visit) override { visit("x", x); }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dy) override {
    return {Cast(dy[0], from)};
  }
  bool CanRecompute(int) const override { return static_cast<bool>(x); }
  Tensor Recompute(int) override { return Cast(x, to); }
  const DType from, to;
  Tensor x;  // absent unless a region makes the wider result again
};

}  // namespace

Tensor Cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  ESPALIER_CHECK(x.is_contiguous(), "x is strided ", ToString(x));
  Tensor y = Tensor::Empty(x.device(), x.shape(), dtype);
  const cast::Args args{x.view(), y.view()};
  switch (dtype) {
    case kF64:
      Launch("cast to f64", kToF64, x, args, {&x}, {&y});
      break;
    case kF32:
      Launch("cast to f32", kToF32, x, args, {&x}, {&y});
      break;
    case kBF16:
      Launch("cast to bf16", kToBF16, x, args, {&x}, {&y});
      break;
    case kF16:
      Launch("cast to f16", kToF16, x, args, {&x}, {&y});
      break;
    default:
      internal::FailNoKernel("cast to an integer dtype", x);
  }
  return y;
}

Variable Cast(const Variable& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const bool save =
      autograd::SavesForRecompute() && SizeOf(dtype) > SizeOf(x.dtype());
  return autograd::Record(
      Cast(x.value(), dtype),
      std::make_unique<CastNode>(x.dtype(), dtype, save ? x.value() : Tensor()),
      {&x});
}

}  // namespace espalier
