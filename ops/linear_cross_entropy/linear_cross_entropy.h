#ifndef ESPALIER_OPS_LINEAR_CROSS_ENTROPY_LINEAR_CROSS_ENTROPY_H_
#define ESPALIER_OPS_LINEAR_CROSS_ENTROPY_LINEAR_CROSS_ENTROPY_H_

#include <cstdint>

#include "espalier/autograd/variable.h"

namespace espalier {

struct LinearCrossEntropyOptions {
  int64_t ignore_index = -100;  // tokens with this label count nothing
  double logit_scale = 1;       // logits = logit_scale * x weight^T
  double z_loss = 0;            // coefficient of lse^2
};

struct LinearCrossEntropyResult {
  Variable loss;        // [] f32 (f64 for f64)
  Tensor weight_sum;    // [] the same dtype: sum of the counted weights
  Tensor token_losses;  // [T] the same dtype: lse - logit of the label,
                        // unweighted and without z-loss; 0 where ignored
};

// Output head and cross entropy in one, a sum over tokens, not a mean:
//   lse[t] = log(sum_v exp(logits[t,v]))
//   loss = sum_t w[t] * (lse[t] - logits[t,label[t]] + z_loss * lse[t]^2)
//   x [T, H] f64 | f32 | bf16   weight [V, H] same dtype
//   labels [T] i32 | i64        token_weights [T] f32, absent: all 1
// Logits exist only as tiles: the vocabulary is walked in blocks with an online
// softmax. Logits and sums are f32 (f64 for f64); for bf16 the probabilities
// are rounded to bf16 before they meet the weight. The sums over tokens run in
// f64 in the order of tokens.
// Differentiable in x and weight. With a frozen weight dx (for a cotangent of
// 1, f32 [T, H]) is accumulated in the forward pass, beside the softmax, and
// only scaled in backward: two products in all. A weight that needs a gradient
// saves x, weight, lse and, in the memory that its gradient will take, the
// exponentials of the first H counted tokens in its dtype; backward computes
// those of the others once more, with the same bits: three products, and a
// fourth of the tokens beyond H.
// Fails: INTERNAL on shapes and dtypes, INVALID_ARGUMENT on a label that is
// neither ignore_index nor in [0, V).
LinearCrossEntropyResult LinearCrossEntropy(
    const Variable& x, const Variable& weight, const Tensor& labels,
    const Tensor& token_weights = Tensor(),
    const LinearCrossEntropyOptions& options = LinearCrossEntropyOptions());

// The logits themselves, for evaluation and sampling:
// [T, V] f32 (f64 for f64) = logit_scale * x weight^T. Not differentiable.
Variable Logits(const Variable& x, const Variable& weight,
                double logit_scale = 1);

}  // namespace espalier

#endif  // ESPALIER_OPS_LINEAR_CROSS_ENTROPY_LINEAR_CROSS_ENTROPY_H_
