#include <cmath>

#include "espalier/ops/adamw/internal/kernels.h"

namespace espalier::adamw {

void Ref(const Args& args, const Exec&) {
  double* p = args.parameter.data<double>();
  const double* gradient = args.gradient.data<const double>();
  double* m = args.m.data<double>();
  double* v = args.v.data<double>();
  for (int64_t i = 0; i < args.parameter.num_elements(); ++i) {
    const double g = args.gradient_scale * gradient[i];
    m[i] = args.beta1 * m[i] + (1 - args.beta1) * g;
    v[i] = args.beta2 * v[i] + (1 - args.beta2) * g * g;
    const double denominator = std::sqrt(v[i]) * args.v_scale + args.eps;
    p[i] = args.decay * p[i] - args.step_size * m[i] / denominator;
    if (args.bf16_copy) args.bf16_copy.data<BFloat16>()[i] = BFloat16(p[i]);
  }
}

}  // namespace espalier::adamw
