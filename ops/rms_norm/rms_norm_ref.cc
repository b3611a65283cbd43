#include <cmath>

#include "espalier/ops/rms_norm/internal/kernels.h"

namespace espalier::rms_norm {

namespace {

struct Gate {
  double value;
  double slope;
};

Gate GateAt(const View& gate, int64_t i, NormGate activation) {
  if (!gate) return {1, 0};
  const double z = gate.data<const double>()[i];
  const double s = 1 / (1 + std::exp(-z));
  if (activation == NormGate::kSigmoid) return {s, s * (1 - s)};
  return {z * s, s + z * s * (1 - s)};
}

double WeightAt(const View& weight, int64_t h, NormWeight form) {
  const double w = weight.data<const double>()[h];
  return form == NormWeight::kPlusOne ? 1 + w : w;
}

}  // namespace

void ForwardRef(const ForwardArgs& args, const Exec&) {
  const int64_t width = args.x.dim(-1);
  for (int64_t t = 0; t < args.rstd.dim(0); ++t) {
    const double* x = args.x.data<const double>() + t * width;
    double sum = 0;
    for (int64_t h = 0; h < width; ++h) sum += x[h] * x[h];
    const double rstd =
        1 / std::sqrt(sum / static_cast<double>(width) + args.eps);
    args.rstd.data<double>()[t] = rstd;
    for (int64_t h = 0; h < width; ++h) {
      const int64_t i = t * width + h;
      args.y.data<double>()[i] = WeightAt(args.weight, h, args.form) * x[h] *
                                 rstd *
                                 GateAt(args.gate, i, args.activation).value;
    }
  }
}

void BackwardRef(const BackwardArgs& args, const Exec&) {
  const int64_t width = args.x.dim(-1);
  double* dweight = args.dweight.data<double>();
  for (int64_t h = 0; args.dweight && h < width; ++h) dweight[h] = 0;
  for (int64_t t = 0; t < args.rstd.dim(0); ++t) {
    const double* x = args.x.data<const double>() + t * width;
    const double* dy = args.dy.data<const double>() + t * width;
    const double rstd = args.rstd.data<const double>()[t];
    double dot = 0;
    for (int64_t h = 0; h < width; ++h) {
      const int64_t i = t * width + h;
      const Gate gate = GateAt(args.gate, i, args.activation);
      const double weight = WeightAt(args.weight, h, args.form);
      dot += dy[h] * gate.value * weight * x[h];
      if (args.dweight) dweight[h] += dy[h] * gate.value * x[h] * rstd;
      if (args.dgate) {
        args.dgate.data<double>()[i] =
            dy[h] * x[h] * rstd * weight * gate.slope;
      }
    }
    if (!args.dx) continue;
    const double scale = dot * rstd * rstd * rstd / static_cast<double>(width);
    for (int64_t h = 0; h < width; ++h) {
      const int64_t i = t * width + h;
      args.dx.data<double>()[i] =
          dy[h] * GateAt(args.gate, i, args.activation).value *
              WeightAt(args.weight, h, args.form) * rstd -
          x[h] * scale;
    }
  }
}

}  // namespace espalier::rms_norm
