#ifndef ESPALIER_OPS_ACTIVATIONS_H_
#define ESPALIER_OPS_ACTIVATIONS_H_

#include <cmath>
#include <cstdint>

namespace espalier {

// Which scalar function an activation kernel applies.
//   kSilu      x / (1 + e^-x)                              (arXiv:1702.03118)
//   kGelu      x * Phi(x), Phi the normal distribution     (arXiv:1606.08415)
//   kGeluTanh  x / 2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh };

// sqrt(8 / pi): gelu_tanh(x) = x * sigmoid(kGeluTanhScale (x + 0.044715 x^3)).
inline constexpr double kGeluTanhScale = 1.5957691216057308;
inline constexpr double kGeluTanhCubic = 0.044715;

// Value and derivative in f64, what every kernel is tested on.
struct ActivationPoint {
  double value;
  double slope;
};

inline ActivationPoint ActivationAt(Activation activation, double x) {
  if (activation == Activation::kGelu) {
    const double integral = 0.5 * std::erfc(-x * 0.70710678118654752);
    const double density = 0.39894228040143268 * std::exp(-0.5 * x * x);
    return {x * integral, integral + x * density};
  }
  double u = x;
  double du = 1;
  if (activation == Activation::kGeluTanh) {
    u = kGeluTanhScale * x * (1 + kGeluTanhCubic * x * x);
    du = kGeluTanhScale * (1 + 3 * kGeluTanhCubic * x * x);
  }
  const double s = 1 / (1 + std::exp(-u));
  return {x * s, s + x * s * (1 - s) * du};
}

}  // namespace espalier

#endif  // ESPALIER_OPS_ACTIVATIONS_H_
