#include "espalier/ops/matmul/prepared_weight.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "espalier/ops/matmul/frozen_linear.h"
#include "espalier/ops/matmul/internal/kernels.h"
#include "espalier/ops/matmul/internal/product.h"
#include "espalier/ops/matmul/linear_terms.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/kernel.h"

namespace espalier {

namespace {

// By the dtype of the weight.
constexpr Kernel<matmul::PanelsArgs> kPanels[] = {
    {kCpu, kF32, matmul::PanelsCpu},
    {kCpu, kBF16, matmul::PanelsCpu},
};

Tensor MakePanels(const Tensor& weight, DType activations,
                  bool input_gradient) {
  Device& device = weight.device();
  const MemoryScope scope(device, MemoryTag::kWeights);
  matmul::PanelsArgs args{weight.view(), activations, input_gradient, {}};
  Tensor panels = Tensor::Empty(
      device, {matmul::PanelsBytes(args, device.context().isa())}, kU8);
  args.panels = panels.view();
  Launch("linear.prepare", kPanels, weight, args, {&weight}, {&panels});
  return panels;
}

// c = alpha a W^T, or a W, from the layout or in place.
void Multiply(absl::string_view op, const Tensor& a,
              const PreparedWeight& weight, bool input_gradient,
              const matmul::Terms& terms, double alpha, const Tensor& c) {
  const Tensor& panels =
      input_gradient ? weight.input_gradient() : weight.forward();
  const Tensor a_rows = matmul::AsMatrix(a);
  const Tensor c_rows = matmul::AsMatrix(c);
  if (panels) {
    return matmul::PanelProduct(op, a_rows, panels, weight.dtype(), terms,
                                alpha, c_rows);
  }
  const Tensor& rows = weight.in_place();
  matmul::Product(op, a_rows, input_gradient ? rows : rows.Transpose(0, 1),
                  terms, alpha, c_rows);
}

struct PreparedLinearNode final : matmul::FrozenLinearNode {
  PreparedLinearNode(PreparedWeight weight, const LinearOptions& options,
                     const Variable& bias)
      : FrozenLinearNode(options, bias), weight(std::move(weight)) {}
  absl::string_view name() const override { return "prepared_linear"; }
  Tensor InputGradient(const Tensor& dy, double alpha) const override {
    Tensor dx = Tensor::Empty(
        dy.device(), dy.shape().WithDim(-1, weight.in_features()), dy.dtype());
    Multiply("prepared_linear.dx", dy, weight, true, {}, alpha, dx);
    return dx;
  }
  PreparedWeight weight;
};

}  // namespace

PreparedWeight::PreparedWeight(Tensor weight, const PrepareOptions& options)
    : shape_(weight.shape()), dtype_(weight.dtype()), options_(options) {
  if (options.forward) {
    forward_ = MakePanels(weight, options.activations, false);
  }
  if (options.input_gradient) {
    input_gradient_ = MakePanels(weight, options.activations, true);
  }
  if (!forward_ || !input_gradient_) in_place_ = std::move(weight);
}

Device& PreparedWeight::device() const {
  return (forward_ ? forward_ : input_gradient_).device();
}

int64_t PreparedWeight::prepared_bytes() const {
  return (forward_ ? forward_.num_bytes() : 0) +
         (input_gradient_ ? input_gradient_.num_bytes() : 0);
}

int64_t PreparedWeight::resident_bytes() const {
  const bool in_memory =
      in_place_ && in_place_.storage_kind() != StorageKind::kFileMap;
  return prepared_bytes() + (in_memory ? in_place_.num_bytes() : 0);
}

std::string ToString(const PreparedWeight& weight) {
  const PrepareOptions& options = weight.options();
  return absl::StrCat(ToString(weight.dtype()), " ", ToString(weight.shape()),
                      " for ", ToString(options.activations), ", ",
                      options.forward ? "forward" : "",
                      options.forward && options.input_gradient ? " and " : "",
                      options.input_gradient ? "input gradient" : "", ", ",
                      weight.prepared_bytes(), " bytes");
}

PreparedWeight PrepareWeight(const Tensor& weight,
                             const PrepareOptions& options) {
  ESPALIER_CHECK(weight.ndim() == 2 && weight.is_contiguous() &&
                     matmul::Narrow(weight.dtype()) &&
                     matmul::Narrow(options.activations),
                 "weight is ", ToString(weight), " for ",
                 ToString(options.activations), " activations");
  ESPALIER_CHECK(options.forward || options.input_gradient, "weight ",
                 ToString(weight), " is to be prepared for nothing");
  return {weight, options};
}

Variable Linear(const Variable& x, const PreparedWeight& weight,
                const Variable& bias, const LinearOptions& options,
                const Variable& addend) {
  const Tensor& xv = x.value();
  const DType dtype = weight.options().activations;
  ESPALIER_CHECK(xv.ndim() >= 2 && xv.is_contiguous() &&
                     xv.dim(-1) == weight.in_features() &&
                     xv.dtype() == dtype &&
                     options.out_dtype.value_or(dtype) == dtype,
                 "weight is ", ToString(weight), " for x ", ToString(xv),
                 ", out ", ToString(options.out_dtype.value_or(dtype)));
  ESPALIER_CHECK(&xv.device() == &weight.device(), "weight is on ",
                 ToString(weight.device().type()), ", x is ", ToString(xv));
  const Shape shape = xv.shape().WithDim(-1, weight.out_features());
  matmul::CheckBias(bias, weight.out_features(), xv);
  matmul::CheckAddend(addend, options.beta, shape, dtype);
  matmul::Terms terms;
  terms.beta = options.beta;
  if (bias) terms.bias = bias.value();
  if (addend) terms.addend = matmul::AsMatrix(addend.value());
  const Tensor y = Tensor::Empty(xv.device(), shape, dtype);
  Multiply("prepared_linear", xv, weight, false, terms, options.alpha, y);
  return autograd::Record(
      y, std::make_unique<PreparedLinearNode>(weight, options, bias),
      {&x, &bias, &addend});
}

}  // namespace espalier
