#ifndef ESPALIER_TRAIN_OPTIMIZER_H_
#define ESPALIER_TRAIN_OPTIMIZER_H_

#include <cstdint>
#include <vector>

#include "espalier/model/module.h"
#include "espalier/runtime/tensor.h"

namespace espalier {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
};

// AdamW (arXiv:1711.05101) over f32 parameters, moments in f32.
class AdamWOptimizer {
 public:
  AdamWOptimizer(const std::vector<Parameter*>& parameters,
                 const AdamWOptions& options);

  // Updates every parameter by its gradient, which is divided by
  // `gradient_divisor` (and scaled down to max_grad_norm if that is above 0),
  // and clears it. Parameters without a gradient count as gradient 0. Returns
  // the global norm of the divided gradient. Fails FAILED_PRECONDITION, with
  // the parameter's name and nothing updated, on a gradient that is not finite.
  double Step(double learning_rate, double gradient_divisor,
              double max_grad_norm);

  int64_t num_steps() const { return num_steps_; }

 private:
  struct Slot {
    Parameter* parameter;
    Tensor first_moment, second_moment;
  };

  const AdamWOptions options_;
  std::vector<Slot> slots_;
  int64_t num_steps_ = 0;
};

}  // namespace espalier

#endif  // ESPALIER_TRAIN_OPTIMIZER_H_
