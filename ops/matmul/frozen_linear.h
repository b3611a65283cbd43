#ifndef ESPALIER_OPS_MATMUL_FROZEN_LINEAR_H_
#define ESPALIER_OPS_MATMUL_FROZEN_LINEAR_H_

#include <vector>

#include "espalier/autograd/node.h"
#include "espalier/ops/matmul/matmul.h"

namespace espalier::matmul {

// y = alpha x W^T + beta addend + bias with a frozen W, in any layout, which
// the derived node holds: a parameter of its module, not memory of the step.
// Inputs x, bias, addend.
class FrozenLinearNode : public autograd::Node {
 public:
  FrozenLinearNode(const LinearOptions& options, const Variable& bias);
  void ForEachSaved(SavedVisitor) final {}
  std::vector<Tensor> Backward(absl::Span<const Tensor> dys) final;

 protected:
  // alpha * dy W, [.., in].
  virtual Tensor InputGradient(const Tensor& dy, double alpha) const = 0;

 private:
  double alpha_, beta_;
  DType bias_dtype_;
};

}  // namespace espalier::matmul

#endif  // ESPALIER_OPS_MATMUL_FROZEN_LINEAR_H_
