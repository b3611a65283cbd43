#ifndef ESPALIER_OPS_ONLINE_SOFTMAX_ONLINE_SOFTMAX_H_
#define ESPALIER_OPS_ONLINE_SOFTMAX_ONLINE_SOFTMAX_H_

#include <cstdint>

#include "espalier/runtime/cpu_features.h"
#include "espalier/runtime/dtype.h"

// The row work of attention and of the fused output head: softmax over scores
// that arrive block by block (arXiv:2205.14135). f32 throughout, in powers of
// two: scores are multiplied by log2(e) on the way in. Nothing here checks,
// allocates or throws; each call runs on the calling thread.
namespace espalier::online_softmax {

inline constexpr double kLog2E = 1.4426950408889634;
inline constexpr double kLn2 = 0.6931471805599453;

// Floats that must be readable and writable behind each row of scores.
inline constexpr int64_t kSlack = 16;

// One block of scores. Per row r, over the columns c of [begin[r], end[r]):
//   z = score * scale, or, with cap > 0, cap * tanh(score * scale / cap);
//       both times log2(e)
//   new_max = max(max, max_c z);  factor = 2^(max - new_max)
//   score = 2^(z - new_max);  sum = factor * sum + sum_c score
//   out[r, :] = factor * out[r, :]
// The other columns of [zero_begin, zero_end) become 0. A row without columns
// keeps its max, sum and out. Start with max -infinity and sum 0.
struct BlockArgs {
  float* scores = nullptr;  // [rows, stride]
  int64_t stride = 0;
  int rows = 0;
  const int32_t* begin = nullptr;
  const int32_t* end = nullptr;
  int64_t zero_begin = 0;
  int64_t zero_end = 0;
  float scale = 1;
  float cap = 0;
  float* max = nullptr;  // [rows], log2
  float* sum = nullptr;  // [rows]
  float* out = nullptr;  // [rows, out_stride], may be null
  int64_t out_stride = 0;
  int64_t out_width = 0;
};
void AddBlock(const BlockArgs& args, Isa isa);

// The log of a row's sum of exponentials, natural.
float LogSumExp(float max, float sum);

// to[r, :] = from[r, :] * factors[r], rounded to f32 or bf16.
struct ScaleRowsArgs {
  const float* from = nullptr;
  int64_t from_stride = 0;
  const float* factors = nullptr;  // [rows]
  int64_t rows = 0;
  int64_t width = 0;
  void* to = nullptr;
  int64_t to_stride = 0;
  DType to_dtype = kF32;
};
void ScaleRows(const ScaleRowsArgs& args, Isa isa);

}  // namespace espalier::online_softmax

#endif  // ESPALIER_OPS_ONLINE_SOFTMAX_ONLINE_SOFTMAX_H_
