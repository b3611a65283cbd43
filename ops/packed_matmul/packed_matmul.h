#ifndef ESPALIER_OPS_PACKED_MATMUL_PACKED_MATMUL_H_
#define ESPALIER_OPS_PACKED_MATMUL_PACKED_MATMUL_H_

#include "espalier/autograd/variable.h"
#include "espalier/ops/matmul/matmul.h"
#include "espalier/runtime/packed_weight.h"

namespace espalier {

// y = alpha * x W^T + beta * addend + bias with a frozen weight that stays
// packed; it is decoded while the product runs and no decoded copy outlives a
// task.
//   x [.., in] f64 | f32 | bf16, contiguous   W [out, in]   bias [out] and
//   addend [.., out] as for Linear   returns [.., out]
// f64: exact decode, plain loops. f32: weights are f32(code * scale), products
// and sums as gemm.h. bf16: weights are that value rounded once more to bf16
// (exact for MXFP4; what compressed-tensors and DeepSeek dequantise to),
// products exact, sums in f32; on AVX512-BF16 subnormal bf16 weights and
// subnormal sums count as zero. Either layout, any number of rows and of
// threads: the same bits for a row, as for Linear on the decoded weight (up to
// 4 rows of MXFP4 carry their sums in units of the scale: there, while sums
// stay above 2^-96). The backward pass, dx = dy W, multiplies with the same
// values; for a bf16 x a dy of out_dtype f32 is rounded to bf16 first. All
// terms are added in f32, then rounded once. Differentiable in x, bias and
// addend; the weight has no gradient. Fails: INTERNAL on a shape, dtype or
// device mismatch.
Variable PackedLinear(const Variable& x, const PackedWeight& weight,
                      const Variable& bias = {},
                      const LinearOptions& options = {},
                      const Variable& addend = {});

// The weight in layout kLanes, on its device, counted as kWeights: once per
// weight, from then on resident (`bytes()`; the rows may be dropped). Right
// for every use; the row layout is as fast from a few hundred rows on and for
// the gradient, and costs nothing beyond the mapped file.
PackedWeight PrepareLanes(const PackedWeight& rows);

}  // namespace espalier

#endif  // ESPALIER_OPS_PACKED_MATMUL_PACKED_MATMUL_H_
