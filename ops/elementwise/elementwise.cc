#include "espalier/ops/elementwise/elementwise.h"

#include <memory>
#include <utility>
#include <vector>

#include "espalier/autograd/node.h"
#include "espalier/ops/elementwise/internal/kernels.h"
#include "espalier/ops/split.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

constexpr Kernel<elementwise::AddScaledArgs> kAddScaled[] = {
    {kCpu, kF64, elementwise::AddScaledRef},
    {kCpu, kF32, elementwise::AddScaledCpu<float>},
    {kCpu, kBF16, elementwise::AddScaledCpu<BFloat16>},
};
constexpr Kernel<elementwise::MulArgs> kMul[] = {
    {kCpu, kF64, elementwise::MulRef},
    {kCpu, kF32, elementwise::MulCpu<float>},
    {kCpu, kBF16, elementwise::MulCpu<BFloat16>},
};
constexpr Kernel<elementwise::ScaleArgs> kScale[] = {
    {kCpu, kF64, elementwise::ScaleRef},
    {kCpu, kF32, elementwise::ScaleCpu<float>},
    {kCpu, kBF16, elementwise::ScaleCpu<BFloat16>},
};
constexpr Kernel<elementwise::ColumnSumArgs> kColumnSum[] = {
    {kCpu, kF64, elementwise::ColumnSumRef},
    {kCpu, kF32, elementwise::ColumnSumCpu<float>},
    {kCpu, kBF16, elementwise::ColumnSumCpu<BFloat16>},
};

Tensor LaunchAddScaled(absl::string_view op, const Tensor& a, const Tensor& b,
                       double factor) {
  Tensor y = EmptyLike(a);
  Launch(op, kAddScaled, a,
         elementwise::AddScaledArgs{a.view(), b.view(), factor, y.view()},
         {&a, &b}, {&y});
  return y;
}

Tensor LaunchMul(absl::string_view op, const Tensor& a, const Tensor& b) {
  Tensor y = EmptyLike(a);
  Launch(op, kMul, a, elementwise::MulArgs{a.view(), b.view(), y.view()},
         {&a, &b}, {&y});
  return y;
}

Tensor LaunchScale(absl::string_view op, const Tensor& x, double factor) {
  Tensor y = EmptyLike(x);
  Launch(op, kScale, x, elementwise::ScaleArgs{x.view(), factor, y.view()},
         {&x}, {&y});
  return y;
}

// The sum over rows of a, or of a * b.
Tensor LaunchColumnSum(absl::string_view op, const Tensor& a, const Tensor& b) {
  const int64_t width = a.dim(-1);
  const int64_t rows = width == 0 ? 0 : a.num_elements() / width;
  Tensor sum = Tensor::Empty(a.device(), {width}, a.dtype());
  Tensor block_sums;
  {
    const MemoryScope scope(a.device(), MemoryTag::kWorkspace);
    block_sums =
        Tensor::Empty(a.device(), {NumBlocks(rows), width}, WideOf(a.dtype()));
  }
  Launch(op, kColumnSum, a,
         elementwise::ColumnSumArgs{a.view(), b.view(), sum.view(),
                                    block_sums.view()},
         {&a, &b}, {&sum, &block_sums});
  return sum;
}

// How b meets a.
enum class Meeting : uint8_t { kSameShape, kRow };

Meeting CheckOperands(const Tensor& a, const Tensor& b, bool row_allowed) {
  ESPALIER_CHECK(a.is_contiguous() && b.is_contiguous(), "a is ", ToString(a),
                 ", b is ", ToString(b), ", not both contiguous");
  ESPALIER_CHECK(a.dtype() == b.dtype(), "b is ", ToString(b), " for a ",
                 ToString(a));
  if (a.shape() == b.shape()) return Meeting::kSameShape;
  ESPALIER_CHECK(row_allowed && a.ndim() >= 1 && b.shape() == Shape{a.dim(-1)},
                 "b is ", ToString(b.shape()), " for a ", ToString(a.shape()));
  return Meeting::kRow;
}

struct AddScaledNode final : autograd::Node {
  AddScaledNode(double factor, Meeting meeting)
      : factor(factor), meeting(meeting) {}
  absl::string_view name() const override { return "add_scaled"; }
  void ForEachSaved(SavedVisitor) override {}
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    const Tensor& dy = dys[0];
    Tensor da = needs_grad(0) ? dy : Tensor();
    Tensor db;
    if (needs_grad(1)) {
      db = meeting == Meeting::kRow
               ? LaunchColumnSum("add_scaled.backward", dy, Tensor())
               : dy;
      if (factor != 1) db = LaunchScale("add_scaled.backward", db, factor);
    }
    return {std::move(da), std::move(db)};
  }
  const double factor;
  const Meeting meeting;
};

struct MulNode final : autograd::Node {
  MulNode(Tensor a, Tensor b, Meeting meeting)
      : a(std::move(a)), b(std::move(b)), meeting(meeting) {}
  absl::string_view name() const override { return "mul"; }
  void ForEachSaved(SavedVisitor visit) override {
    visit("a", a);
    visit("b", b);
  }
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    const Tensor& dy = dys[0];
    Tensor da = needs_grad(0) ? LaunchMul("mul.backward", dy, b) : Tensor();
    Tensor db;
    if (needs_grad(1)) {
      db = meeting == Meeting::kRow ? LaunchColumnSum("mul.backward", dy, a)
                                    : LaunchMul("mul.backward", dy, a);
    }
    return {std::move(da), std::move(db)};
  }
  Tensor a, b;  // each absent unless the other needs a gradient
  const Meeting meeting;
};

struct ScaleNode final : autograd::Node {
  explicit ScaleNode(double factor) : factor(factor) {}
  absl::string_view name() const override { return "scale"; }
  void ForEachSaved(SavedVisitor) override {}
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) override {
    return {LaunchScale("scale.backward", dys[0], factor)};
  }
  const double factor;
};

Variable Combine(absl::string_view op, const Variable& a, const Variable& b,
                 double factor, bool row_allowed) {
  const Meeting meeting = CheckOperands(a.value(), b.value(), row_allowed);
  return autograd::Record(LaunchAddScaled(op, a.value(), b.value(), factor),
                          std::make_unique<AddScaledNode>(factor, meeting),
                          {&a, &b});
}

}  // namespace

Variable Add(const Variable& a, const Variable& b) {
  return Combine("add", a, b, 1, /*row_allowed=*/true);
}

Variable Sub(const Variable& a, const Variable& b) {
  return Combine("sub", a, b, -1, /*row_allowed=*/false);
}

Variable AddScaled(const Variable& a, const Variable& b, double factor) {
  return Combine("add_scaled", a, b, factor, /*row_allowed=*/false);
}

Variable Mul(const Variable& a, const Variable& b) {
  const Meeting meeting =
      CheckOperands(a.value(), b.value(), /*row_allowed=*/true);
  return autograd::Record(
      LaunchMul("mul", a.value(), b.value()),
      std::make_unique<MulNode>(autograd::NeedsGrad(b) ? a.value() : Tensor(),
                                autograd::NeedsGrad(a) ? b.value() : Tensor(),
                                meeting),
      {&a, &b});
}

Variable Scale(const Variable& x, double factor) {
  ESPALIER_CHECK(x.value().is_contiguous(), "x is ", ToString(x.value()));
  return autograd::Record(LaunchScale("scale", x.value(), factor),
                          std::make_unique<ScaleNode>(factor), {&x});
}

}  // namespace espalier
