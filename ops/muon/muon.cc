#include "espalier/ops/muon/muon.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "espalier/autograd/mode.h"
#include "espalier/ops/elementwise/elementwise.h"
#include "espalier/ops/matmul/matmul.h"
#include "espalier/ops/reduce/norm.h"

namespace espalier {

namespace {

double ScaleOf(const Tensor& parameter, MuonScale scale) {
  const auto rows = static_cast<double>(parameter.dim(0));
  const auto cols = static_cast<double>(parameter.dim(1));
  if (scale == MuonScale::kSpectral)
    return std::sqrt(std::max(1.0, rows / cols));
  return 0.2 * std::sqrt(std::max(rows, cols));
}

}  // namespace

Tensor NewtonSchulz(const Tensor& matrix, int num_iterations) {
  ESPALIER_CHECK(matrix.ndim() == 2 && matrix.is_contiguous(), "matrix is ",
                 ToString(matrix));
  const NoGrad no_grad;
  const bool tall = matrix.dim(0) > matrix.dim(1);
  MatMulOptions square;
  square.transpose_a = tall;
  square.transpose_b = !tall;
  const double norm = std::sqrt(SumOfSquares(matrix));
  // The inverse of a norm below the normal numbers of f32 is infinite there.
  const bool vanishing = norm < std::numeric_limits<float>::min();
  Variable x = Scale(Variable(matrix), vanishing ? 0 : 1 / norm);
  for (int i = 0; i < num_iterations; ++i) {
    const Variable a = MatMul(x, x, square);
    const Variable polynomial =
        AddScaled(Scale(a, -4.7750), MatMul(a, a), 2.0315);
    const Variable change =
        tall ? MatMul(x, polynomial) : MatMul(polynomial, x);
    x = AddScaled(change, x, 3.4445);
  }
  return x.value();
}

void Muon(const Tensor& parameter, const Tensor& gradient,
          const Tensor& momentum_buffer, const MuonUpdate& update) {
  for (const Tensor* other : {&gradient, &momentum_buffer}) {
    ESPALIER_CHECK(
        parameter.ndim() == 2 && other->shape() == parameter.shape() &&
            other->dtype() == parameter.dtype() && other->is_contiguous(),
        "parameter is ", ToString(parameter), ", gradient ", ToString(gradient),
        ", buffer ", ToString(momentum_buffer));
  }
  ESPALIER_CHECK(parameter.is_contiguous() && !parameter.read_only() &&
                     !momentum_buffer.read_only(),
                 "parameter is strided, or it or the buffer is read-only");
  const NoGrad no_grad;
  const Variable g = Scale(Variable(gradient), update.gradient_scale);
  const Variable buffer =
      AddScaled(g, Variable(momentum_buffer), update.momentum);
  const Variable direction =
      update.nesterov ? AddScaled(g, buffer, update.momentum) : buffer;
  const Variable step(NewtonSchulz(direction.value(), update.num_iterations));
  const Variable kept = Scale(Variable(parameter),
                              1 - update.learning_rate * update.weight_decay);
  const Variable moved = AddScaled(
      kept, step, -update.learning_rate * ScaleOf(parameter, update.scale));
  // Both or, short of memory, neither.
  momentum_buffer.CopyFrom(buffer.value());
  parameter.CopyFrom(moved.value());
}

}  // namespace espalier
