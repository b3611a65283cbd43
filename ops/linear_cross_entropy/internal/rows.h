#ifndef ESPALIER_OPS_LINEAR_CROSS_ENTROPY_INTERNAL_ROWS_H_
#define ESPALIER_OPS_LINEAR_CROSS_ENTROPY_INTERNAL_ROWS_H_

#include <cstdint>

#include "espalier/runtime/cpu_features.h"
#include "espalier/runtime/dtype.h"

namespace espalier::linear_cross_entropy {

// scores[i] = factor * power[i], i in [0, count): the power is in `powers` or,
// if that is absent, 2^(log2(e) * scale * scores[i] - max) rounded to dtype.
struct ProbabilityRowArgs {
  float* scores = nullptr;
  int64_t count = 0;
  float scale = 1;
  float max = 0;
  float factor = 1;
  DType dtype = kF32;  // or kBF16
  const void* powers = nullptr;
};
void ProbabilityRow(const ProbabilityRowArgs& args, Isa isa);

// out[i] = a * x[i] - b * y[i]; out may be x.
struct CombineRowArgs {
  const float* x = nullptr;
  float a = 1;
  const void* y = nullptr;
  DType y_dtype = kF32;  // or kBF16
  float b = 1;
  float* out = nullptr;
  int64_t count = 0;
};
void CombineRow(const CombineRowArgs& args, Isa isa);

}  // namespace espalier::linear_cross_entropy

#endif  // ESPALIER_OPS_LINEAR_CROSS_ENTROPY_INTERNAL_ROWS_H_
