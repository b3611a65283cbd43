#ifndef ESPALIER_OPS_MUON_MUON_H_
#define ESPALIER_OPS_MUON_MUON_H_

#include <cstdint>

#include "espalier/runtime/tensor.h"

namespace espalier {

// How the orthogonal direction of a [rows, cols] matrix is scaled.
enum class MuonScale : uint8_t {
  kSpectral,  // sqrt(max(1, rows / cols)), as KellerJordan/Muon
  kMatchRms,  // 0.2 sqrt(max(rows, cols)): steps as large as AdamW's
              // (arXiv:2502.16982)
};

struct MuonUpdate {
  double learning_rate = 0;
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0;
  double gradient_scale = 1;  // gradients are multiplied by it first
  int num_iterations = 5;     // of NewtonSchulz
  MuonScale scale = MuonScale::kMatchRms;
};

// The matrix moved towards the nearest one with orthonormal rows (or columns):
// singular values end between about 0.7 and 1.2. From x = matrix / its
// Frobenius norm, each iteration is
//   a = x x^T,  x = 3.4445 x + (-4.7750 a + 2.0315 a a) x
// (KellerJordan/Muon), with x^T x on the right where there are more rows than
// columns. matrix [rows, cols] f32 | f64, contiguous; a norm below 2^-126
// counts as 0, which stays 0. Products as ops/matmul: f32. Fails: INTERNAL on
// another shape.
Tensor NewtonSchulz(const Tensor& matrix, int num_iterations);

// One Muon step, in place:
//   g = gradient_scale * gradient        b = momentum * b + g
//   d = NewtonSchulz(nesterov ? g + momentum * b : b)
//   p = (1 - lr * weight_decay) p - lr * scale * d
//   p, gradient, b [rows, cols], f32 (or all f64), contiguous; b starts at 0
// Fails: INTERNAL on shape or dtype mismatch.
void Muon(const Tensor& parameter, const Tensor& gradient,
          const Tensor& momentum_buffer, const MuonUpdate& update);

}  // namespace espalier

#endif  // ESPALIER_OPS_MUON_MUON_H_
