#include "espalier/train/internal/loss.h"

#include "espalier/ops/linear_cross_entropy/linear_cross_entropy.h"

namespace espalier {

LossSum TokenLoss(CausalLm& model, const Batch& batch) {
  const Variable hidden = model.HiddenStates(batch);
  const LinearCrossEntropyResult result = LinearCrossEntropy(
      hidden, model.head().variable(), batch.labels, batch.weights);
  LossSum sum;
  sum.value = result.loss;
  sum.loss = ToDoubles(result.loss.value())[0];
  sum.weight = ToDoubles(result.weight_sum)[0];
  return sum;
}

}  // namespace espalier
