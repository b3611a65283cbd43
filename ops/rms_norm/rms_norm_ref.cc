#include <cmath>

#include "espalier/ops/rms_norm/internal/kernels.h"

namespace espalier::rms_norm {

void ForwardRef(const ForwardArgs& args, const Exec&) {
  const int64_t width = args.x.dim(-1);
  const double* weight = args.weight.data<const double>();
  for (int64_t t = 0; t < args.x.num_rows(); ++t) {
    const double* x = args.x.data<const double>() + t * width;
    double* y = args.y.data<double>() + t * width;
    double sum = 0;
    for (int64_t h = 0; h < width; ++h) sum += x[h] * x[h];
    const double rstd =
        1 / std::sqrt(sum / static_cast<double>(width) + args.eps);
    args.rstd.data<double>()[t] = rstd;
    for (int64_t h = 0; h < width; ++h) y[h] = weight[h] * x[h] * rstd;
  }
}

void BackwardRef(const BackwardArgs& args, const Exec&) {
  const int64_t rows = args.x.num_rows();
  const int64_t width = args.x.dim(-1);
  const double* weight = args.weight.data<const double>();
  double* dweight = args.dweight.data<double>();
  if (args.dweight) {
    for (int64_t h = 0; h < width; ++h) dweight[h] = 0;
  }
  for (int64_t t = 0; t < rows; ++t) {
    const double* x = args.x.data<const double>() + t * width;
    const double* dy = args.dy.data<const double>() + t * width;
    const double rstd = args.rstd.data<const double>()[t];
    double dot = 0;
    for (int64_t h = 0; h < width; ++h) dot += dy[h] * weight[h] * x[h];
    const double scale = dot * rstd * rstd * rstd / static_cast<double>(width);
    for (int64_t h = 0; h < width; ++h) {
      if (args.dx) {
        args.dx.data<double>()[t * width + h] =
            dy[h] * weight[h] * rstd - x[h] * scale;
      }
      if (args.dweight) dweight[h] += dy[h] * x[h] * rstd;
    }
  }
}

}  // namespace espalier::rms_norm
