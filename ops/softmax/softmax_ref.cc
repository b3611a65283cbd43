#include <algorithm>
#include <cmath>

#include "espalier/ops/softmax/internal/kernels.h"

namespace espalier::softmax {

void ForwardRef(const ForwardArgs& args, const Exec&) {
  const int64_t width = args.x.dim(-1);
  for (int64_t t = 0; width > 0 && t < args.x.num_rows(); ++t) {
    const double* x = args.x.data<const double>() + t * width;
    double* y = args.y.data<double>() + t * width;
    const double max = *std::max_element(x, x + width);
    double sum = 0;
    for (int64_t h = 0; h < width; ++h) sum += y[h] = std::exp(x[h] - max);
    for (int64_t h = 0; h < width; ++h) y[h] /= sum;
  }
}

void BackwardRef(const BackwardArgs& args, const Exec&) {
  const int64_t width = args.y.dim(-1);
  for (int64_t t = 0; t < args.y.num_rows(); ++t) {
    const double* y = args.y.data<const double>() + t * width;
    const double* dy = args.dy.data<const double>() + t * width;
    double* dx = args.dx.data<double>() + t * width;
    double dot = 0;
    for (int64_t h = 0; h < width; ++h) dot += dy[h] * y[h];
    for (int64_t h = 0; h < width; ++h) dx[h] = y[h] * (dy[h] - dot);
  }
}

}  // namespace espalier::softmax
