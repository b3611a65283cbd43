#include <cstdint>

#include "espalier/ops/matmul/internal/kernels.h"
#include "espalier/ops/matmul/internal/leading.h"

namespace espalier::matmul {

void ProductRef(const ProductArgs& args, const Exec&) {
  const View &a = args.a, &b = args.b, &c = args.c;
  const double* base = c.data<const double>();
  for (int64_t matrix = 0; matrix < NumMatrices(c); ++matrix) {
    const double* am = a.data<const double>() + MatrixOffset(a, matrix);
    const double* bm = b.data<const double>() + MatrixOffset(b, matrix);
    double* cm = c.data<double>() + MatrixOffset(c, matrix);
    for (int64_t i = 0; i < c.dim(-2); ++i) {
      for (int64_t j = 0; j < c.dim(-1); ++j) {
        double sum = 0;
        for (int64_t k = 0; k < a.dim(-1); ++k) {
          sum += am[i * a.stride(-2) + k * a.stride(-1)] *
                 bm[k * b.stride(-2) + j * b.stride(-1)];
        }
        const double bias = args.bias ? args.bias.data<const double>()[j] : 0.0;
        double& out = cm[i * c.stride(-2) + j * c.stride(-1)];
        const double addend =
            args.beta == 0
                ? 0.0
                : args.beta * args.addend.data<const double>()[&out - base];
        out = args.alpha * sum + addend + bias;
      }
    }
  }
}

void ColumnSumRef(const ColumnSumArgs& args, const Exec&) {
  const int64_t width = args.out.dim(0);
  const double* x = args.x.data<const double>();
  double* out = args.out.data<double>();
  for (int64_t j = 0; j < width; ++j) {
    double sum = 0;
    for (int64_t t = 0; t < args.x.num_rows(); ++t) sum += x[t * width + j];
    out[j] = sum;
  }
}

}  // namespace espalier::matmul
