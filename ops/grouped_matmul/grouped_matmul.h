#ifndef ESPALIER_OPS_GROUPED_MATMUL_GROUPED_MATMUL_H_
#define ESPALIER_OPS_GROUPED_MATMUL_GROUPED_MATMUL_H_

#include <optional>
#include <vector>

#include "absl/types/span.h"

#include "espalier/autograd/variable.h"
#include "espalier/runtime/packed_weight.h"

namespace espalier {

// Rows sorted by expert, each group through its own weight:
//   y[t, :] = x[t, :] W[e]^T   for t in [expert_offsets[e],
//   expert_offsets[e+1]) x [T, in]   W [E, out, in]   y [T, out] expert_offsets
//   [E + 1], rising from 0 to T; empty groups are legal.
// f64, or f32 and bf16 mixed at will (adapters are f32 beside bf16 rows); y is
// of out_dtype, x's by default. Two bf16 operands are multiplied as bf16,
// everything else as f32; sums in f32 as gemm.h, f64 for f64. A row's bits
// depend on the row and its weight alone, not on its group or on threads.
// Differentiable in x and W; dW[e] sums its group's rows in rising order and is
// zero for an empty group. A frozen W costs no dW, a frozen x no dx.
// Fails: INTERNAL on shapes, dtypes or offsets that do not fit.
Variable GroupedMatMul(const Variable& x, const Variable& weight,
                       absl::Span<const int64_t> expert_offsets,
                       std::optional<DType> out_dtype = {});

// With frozen packed weights, one an expert, all [out, in], of any formats and
// layouts. x as for PackedLinear, whose numerics these are; gradient to x only.
Variable GroupedMatMul(const Variable& x,
                       absl::Span<const PackedWeight> weights,
                       absl::Span<const int64_t> expert_offsets);

// Offsets of an i64 [E + 1] tensor of any device, on the host; waits for it.
std::vector<int64_t> HostOffsets(const Tensor& expert_offsets);

}  // namespace espalier

#endif  // ESPALIER_OPS_GROUPED_MATMUL_GROUPED_MATMUL_H_
