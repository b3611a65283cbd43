#ifndef ESPALIER_OPS_LINEAR_CROSS_ENTROPY_INTERNAL_PLAN_H_
#define ESPALIER_OPS_LINEAR_CROSS_ENTROPY_INTERNAL_PLAN_H_

#include <cstdint>

#include "espalier/ops/gemm/gemm.h"
#include "espalier/runtime/cpu_features.h"
#include "espalier/runtime/dtype.h"

namespace espalier::linear_cross_entropy {

struct Sizes {
  int64_t num_tokens = 0;
  int64_t width = 0;  // H
  int64_t vocab = 0;  // V
  DType dtype = kF32;
};

// How [T, V] is cut into tiles of scores, and what lies where in the workspace
// (bytes from its start). The cut depends on sizes alone.
struct Plan {
  int64_t token_chunk = 1;
  int64_t vocab_block = 1;
  int64_t score_stride = 1;  // floats
  int64_t scores = 0;        // f32 [token_chunk, score_stride]
  int64_t rows = 0;          // x of a chunk, where it is gathered
  int64_t max = 0, sum = 0, label_logits = 0;  // f32 [token_chunk]
  int64_t active = 0;                          // i32 [T], token of each row
  int64_t dweight = 0;  // f32 [vocab_block, H], backward only
  int64_t gemm = 0;     // enough for any number of rows up to token_chunk
  int64_t gemm_bytes = 0;
  int64_t bytes = 0;
};
Plan PlanForward(const Sizes& sizes, bool with_dx, Isa isa);
Plan PlanBackward(const Sizes& sizes, Isa isa);

// The products of one tile of scores with all sizes at hand, their memory not
// yet set: weight rows [vocab_block, H] as they lie, x rows [token_chunk, H].
//   scores = x weight^T      dx += scores weight      dweight += scores^T x
gemm::GemmArgs ScoreProduct(const Sizes& sizes, const Plan& plan, int64_t rows,
                            int64_t columns);
gemm::GemmArgs DxProduct(const Sizes& sizes, const Plan& plan, int64_t rows,
                         int64_t columns);
gemm::GemmArgs DweightProduct(const Sizes& sizes, const Plan& plan,
                              int64_t rows, int64_t columns);

}  // namespace espalier::linear_cross_entropy

#endif  // ESPALIER_OPS_LINEAR_CROSS_ENTROPY_INTERNAL_PLAN_H_
