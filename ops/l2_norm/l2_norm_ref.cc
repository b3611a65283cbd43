#include <cmath>

#include "espalier/ops/l2_norm/internal/kernels.h"

namespace espalier::l2_norm {

void ForwardRef(const ForwardArgs& args, const Exec&) {
  const int64_t width = args.x.dim(-1);
  for (int64_t t = 0; t < args.rsum.dim(0); ++t) {
    const double* x = args.x.data<const double>() + t * width;
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += x[i] * x[i];
    const double r = 1 / std::sqrt(sum + args.eps);
    args.rsum.data<double>()[t] = r;
    for (int64_t i = 0; i < width; ++i) {
      args.y.data<double>()[t * width + i] = x[i] * r;
    }
  }
}

void BackwardRef(const BackwardArgs& args, const Exec&) {
  const int64_t width = args.x.dim(-1);
  for (int64_t t = 0; t < args.rsum.dim(0); ++t) {
    const double* x = args.x.data<const double>() + t * width;
    const double* dy = args.dy.data<const double>() + t * width;
    const double r = args.rsum.data<const double>()[t];
    double dot = 0;
    for (int64_t i = 0; i < width; ++i) dot += x[i] * r * dy[i];
    for (int64_t i = 0; i < width; ++i) {
      args.dx.data<double>()[t * width + i] = r * (dy[i] - x[i] * r * dot);
    }
  }
}

}  // namespace espalier::l2_norm
