#include "espalier/ops/matmul/frozen_linear.h"

#include <utility>

#include "espalier/ops/matmul/linear_terms.h"

namespace espalier::matmul {

FrozenLinearNode::FrozenLinearNode(const LinearOptions& options,
                                   const Variable& bias)
    : alpha_(options.alpha),
      beta_(options.beta),
      bias_dtype_(bias ? bias.dtype() : kF32) {}

std::vector<Tensor> FrozenLinearNode::Backward(absl::Span<const Tensor> dys) {
  const Tensor& dy = dys[0];
  Tensor dx, dbias, daddend;
  if (needs_grad(0)) dx = InputGradient(dy, alpha_);
  if (needs_grad(1)) dbias = BiasGradient(dy, bias_dtype_);
  if (needs_grad(2)) daddend = AddendGradient(dy, beta_);
  return {std::move(dx), std::move(dbias), std::move(daddend)};
}

}  // namespace espalier::matmul
