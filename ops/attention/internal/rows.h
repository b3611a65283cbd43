#ifndef ESPALIER_OPS_ATTENTION_INTERNAL_ROWS_H_
#define ESPALIER_OPS_ATTENTION_INTERNAL_ROWS_H_

#include <cstdint>

#include "espalier/runtime/cpu_features.h"
#include "espalier/runtime/view.h"

namespace espalier::attention {

// One panel of rows of the backward pass. Over the columns [begin[r], end[r]):
//   score  becomes p = exp(z - lse[r]), z the scaled and capped score
//   dpower becomes p * (dpower - delta[r]), times the derivative of the cap
// and the other columns of [zero_begin, zero_end) become 0 in both.
struct GradientRowsArgs {
  float* scores = nullptr;   // [rows, stride]
  float* dpowers = nullptr;  // [rows, stride]
  int64_t stride = 0;
  int rows = 0;
  const int32_t* begin = nullptr;
  const int32_t* end = nullptr;
  int64_t zero_begin = 0;
  int64_t zero_end = 0;
  float scale = 1;
  float cap = 0;
  const float* lse = nullptr;    // [rows]
  const float* delta = nullptr;  // [rows]
};
void GradientRows(const GradientRowsArgs& args, Isa isa);

// delta[n, t] = dot(dout[t, n, :], o[t, n, :]) for tokens [begin, end).
struct DeltaArgs {
  View dout;               // [T, N, Dv] f32 | bf16
  View o;                  // the same
  float* delta = nullptr;  // [N, T]
  int64_t begin = 0, end = 0;
};
void Delta(const DeltaArgs& args, Isa isa);

}  // namespace espalier::attention

#endif  // ESPALIER_OPS_ATTENTION_INTERNAL_ROWS_H_
