#ifndef ESPALIER_TRAIN_INTERNAL_LOSS_H_
#define ESPALIER_TRAIN_INTERNAL_LOSS_H_

#include "espalier/autograd/variable.h"
#include "espalier/model/causal_lm.h"

namespace espalier {

// The one definition of the loss: the sum of weighted token losses. Whoever
// steps or reports divides it once by the sum of weights over everything.
struct LossSum {
  Variable value;  // one element, f32 (f64 for an f64 model)
  double loss = 0;
  double weight = 0;
};

LossSum TokenLoss(CausalLm& model, const Batch& batch);

}  // namespace espalier

#endif  // ESPALIER_TRAIN_INTERNAL_LOSS_H_
