#include <cmath>

#include "espalier/ops/layer_norm/internal/kernels.h"

namespace espalier::layer_norm {

void ForwardRef(const ForwardArgs& args, const Exec&) {
  const int64_t width = args.x.dim(-1);
  const auto count = static_cast<double>(width);
  const double* weight = args.weight.data<const double>();
  const double* bias = args.bias.data<const double>();
  for (int64_t t = 0; t < args.rstd.dim(0); ++t) {
    const double* x = args.x.data<const double>() + t * width;
    double* y = args.y.data<double>() + t * width;
    double mean = 0;
    for (int64_t h = 0; h < width; ++h) mean += x[h] / count;
    double variance = 0;
    for (int64_t h = 0; h < width; ++h) {
      variance += (x[h] - mean) * (x[h] - mean) / count;
    }
    const double rstd = 1 / std::sqrt(variance + args.eps);
    args.mean.data<double>()[t] = mean;
    args.rstd.data<double>()[t] = rstd;
    for (int64_t h = 0; h < width; ++h) {
      y[h] = weight[h] * (x[h] - mean) * rstd + (args.bias ? bias[h] : 0);
    }
  }
}

void BackwardRef(const BackwardArgs& args, const Exec&) {
  const int64_t width = args.x.dim(-1);
  const double* weight = args.weight.data<const double>();
  double* dweight = args.dweight.data<double>();
  double* dbias = args.dbias.data<double>();
  for (int64_t h = 0; args.dweight && h < width; ++h) dweight[h] = 0;
  for (int64_t h = 0; args.dbias && h < width; ++h) dbias[h] = 0;
  for (int64_t t = 0; t < args.rstd.dim(0); ++t) {
    const double* x = args.x.data<const double>() + t * width;
    const double* dy = args.dy.data<const double>() + t * width;
    const double mean = args.mean.data<const double>()[t];
    const double rstd = args.rstd.data<const double>()[t];
    double sum = 0;
    double dot = 0;
    for (int64_t h = 0; h < width; ++h) {
      const double xhat = (x[h] - mean) * rstd;
      sum += dy[h] * weight[h];
      dot += dy[h] * weight[h] * xhat;
      if (args.dweight) dweight[h] += dy[h] * xhat;
      if (args.dbias) dbias[h] += dy[h];
    }
    sum /= static_cast<double>(width);
    dot /= static_cast<double>(width);
    for (int64_t h = 0; args.dx && h < width; ++h) {
      const double xhat = (x[h] - mean) * rstd;
      args.dx.data<double>()[t * width + h] =
          rstd * (dy[h] * weight[h] - sum - xhat * dot);
    }
  }
}

}  // namespace espalier::layer_norm
