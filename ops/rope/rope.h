#ifndef ESPALIER_OPS_ROPE_ROPE_H_
#define ESPALIER_OPS_ROPE_ROPE_H_

#include <cstdint>
#include <vector>

#include "espalier/autograd/variable.h"

namespace espalier {

enum class RopeLayout : uint8_t {
  kHalfSplit,    // channel i turns with channel i + rotary_dim / 2
  kInterleaved,  // channel 2i turns with channel 2i + 1
};

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn };

// Where the frequencies come from; the fields carry the config keys' names.
struct RopeOptions {
  int64_t rotary_dim = 0;  // even; the first channels of each head
  double theta = 10000;
  RopeLayout layout = RopeLayout::kHalfSplit;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  double original_max_position_embeddings = 0;  // llama3, yarn
  double low_freq_factor = 1;                   // llama3
  double high_freq_factor = 4;                  // llama3
  double beta_fast = 32;                        // yarn
  double beta_slow = 1;                         // yarn
  bool truncate = true;                         // yarn
  double mscale = 0;                            // yarn
  double mscale_all_dim = 0;                    // yarn
  double attention_factor = 0;                  // yarn; 0: derived
};

// Radians per position of every pair, [rotary_dim / 2], computed in f64:
// theta^(-2i / rotary_dim), then the scaling (linear: / factor; llama3 as in
// the Llama 3.1 release; yarn: arXiv:2309.00071 as transformers computes it).
std::vector<double> RopeFrequencies(const RopeOptions& options);
// The factor on sin and cos: 1 but for yarn.
double RopeAttentionFactor(const RopeOptions& options);

// The turns of the tokens of one batch, made once and shared by all layers.
struct RopeTable {
  Tensor turns;  // [T, 2, rotary_dim / 2]: cosines, then sines, each times the
                 // attention factor; f32, f64 for f64 activations
  RopeLayout layout = RopeLayout::kHalfSplit;
};

// positions [T] i32 | i64, counted within each document. The angle, position
// times frequency, and its cosine and sine are taken in f64.
// dtype: f64 or f32. Fails: INTERNAL on a bad rotary_dim, shape or dtype.
RopeTable MakeRopeTable(const Tensor& positions, const RopeOptions& options,
                        DType dtype);

// Rotary position embedding (arXiv:2104.09864).
//   x [T, N, D] f64 | f32 | bf16, contiguous   returns x's shape
// A pair (a, b) of head n at token t becomes
//   (a cos - b sin, b cos + a sin), the angle being that of t and the pair.
// Channels from rotary_dim on are copied. Products are f32 (f64 for f64),
// rounded once. Saves the table. Differentiable in x.
// Fails: INTERNAL on shape or dtype mismatch.
Variable Rope(const Variable& x, const RopeTable& table);

// The same with a table of its own: positions [T].
Variable Rope(const Variable& x, const Tensor& positions,
              const RopeOptions& options);

}  // namespace espalier

#endif  // ESPALIER_OPS_ROPE_ROPE_H_
