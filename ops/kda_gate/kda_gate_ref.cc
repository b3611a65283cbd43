#include <algorithm>
#include <cmath>

#include "espalier/ops/kda_gate/internal/kernels.h"

namespace espalier::kda_gate {

namespace {

struct Gate {
  double g;
  double dz;  // dg / dz
  double da;  // dg / dA_log
};

Gate GateAt(double z, double A_log, double bound) {
  const double rate = std::exp(std::min(A_log, 80.0));
  if (bound == 0) {
    const double g =
        -rate * (std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z))));
    return {g, -rate / (1 + std::exp(-z)), g};
  }
  const double s = 1 / (1 + std::exp(-rate * z));
  const double dz = s * (1 - s) * rate * bound;
  return {bound * s, dz, dz * z};
}

template <class Args>
Gate GateOf(const Args& args, int64_t i) {
  const int64_t width = args.dt_bias.dim(0);
  const int64_t heads = args.A_log.dim(0);
  const int64_t c = i % width;
  return GateAt(args.f.template data<const double>()[i] +
                    args.dt_bias.template data<const double>()[c],
                args.A_log.template data<const double>()[c / (width / heads)],
                args.bound);
}

void Clear(const View& view) {
  if (view) std::fill_n(view.data<double>(), view.num_elements(), 0.0);
}

}  // namespace

void ForwardRef(const ForwardArgs& args, const Exec&) {
  for (int64_t i = 0; i < args.f.num_elements(); ++i) {
    args.g.data<double>()[i] = GateOf(args, i).g;
  }
}

void BackwardRef(const BackwardArgs& args, const Exec&) {
  Clear(args.dA_log);
  Clear(args.ddt_bias);
  const int64_t width = args.dt_bias.dim(0);
  for (int64_t i = 0; i < args.f.num_elements(); ++i) {
    const int64_t c = i % width;
    const double dg = args.dg.data<const double>()[i];
    const Gate gate = GateOf(args, i);
    if (args.df) args.df.data<double>()[i] = dg * gate.dz;
    if (args.ddt_bias) args.ddt_bias.data<double>()[c] += dg * gate.dz;
    if (args.dA_log) {
      args.dA_log.data<double>()[c / (width / args.A_log.dim(0))] +=
          dg * gate.da;
    }
  }
}

}  // namespace espalier::kda_gate
