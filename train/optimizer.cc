#include "espalier/train/optimizer.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/ops/adamw/adamw.h"
#include "espalier/ops/reduce/norm.h"
#include "espalier/runtime/check.h"

namespace espalier {

AdamWOptimizer::AdamWOptimizer(const std::vector<Parameter*>& parameters,
                               const AdamWOptions& options)
    : options_(options) {
  for (Parameter* parameter : parameters) {
    const Tensor& value = parameter->variable().value();
    ESPALIER_CHECK(parameter->variable().needs_grad() && value.dtype() == kF32,
                   parameter->name(), " is ", ToString(value),
                   ", expected a trainable f32");
    const MemoryScope scope(value.device(), MemoryTag::kOptimizer);
    slots_.push_back({parameter, ZerosLike(value), ZerosLike(value)});
  }
}

double AdamWOptimizer::Step(double learning_rate, double gradient_divisor,
                            double max_grad_norm) {
  double sum_of_squares = 0;
  for (const Slot& slot : slots_) {
    const Tensor& grad = slot.parameter->variable().grad();
    if (!grad) continue;
    const double norm = std::sqrt(SumOfSquares(grad)) / gradient_divisor;
    if (!std::isfinite(norm)) {
      internal::Fail(absl::FailedPreconditionError(absl::StrCat(
          "gradient of ", slot.parameter->name(), " is not finite at step ",
          num_steps_ + 1, "; lower the learning rate or look at the data")));
    }
    sum_of_squares += norm * norm;
  }
  const double norm = std::sqrt(sum_of_squares);
  double scale = 1 / gradient_divisor;
  if (max_grad_norm > 0 && norm > max_grad_norm) scale *= max_grad_norm / norm;
  ++num_steps_;
  for (Slot& slot : slots_) {
    Variable& variable = slot.parameter->variable();
    const Tensor grad =
        variable.grad() ? variable.grad() : ZerosLike(variable.value());
    AdamWUpdate update;
    update.learning_rate = learning_rate;
    update.beta1 = options_.beta1;
    update.beta2 = options_.beta2;
    update.eps = options_.eps;
    update.weight_decay = options_.weight_decay;
    update.gradient_scale = scale;
    update.step = num_steps_;
    AdamW(variable.value(), grad, slot.first_moment, slot.second_moment,
          update);
    variable.ClearGrad();
  }
  return norm;
}

}  // namespace espalier
