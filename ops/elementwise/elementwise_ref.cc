#include "espalier/ops/elementwise/internal/kernels.h"

namespace espalier::elementwise {

void AddScaledRef(const AddScaledArgs& args, const Exec&) {
  const double* a = args.a.data<const double>();
  const double* b = args.b.data<const double>();
  double* y = args.y.data<double>();
  const int64_t period = args.b.num_elements();
  for (int64_t i = 0; i < args.y.num_elements(); ++i) {
    y[i] = a[i] + args.factor * b[i % period];
  }
}

void MulRef(const MulArgs& args, const Exec&) {
  const double* a = args.a.data<const double>();
  const double* b = args.b.data<const double>();
  double* y = args.y.data<double>();
  const int64_t period = args.b.num_elements();
  for (int64_t i = 0; i < args.y.num_elements(); ++i) {
    y[i] = a[i] * b[i % period];
  }
}

void ScaleRef(const ScaleArgs& args, const Exec&) {
  const double* x = args.x.data<const double>();
  double* y = args.y.data<double>();
  for (int64_t i = 0; i < args.y.num_elements(); ++i) y[i] = args.factor * x[i];
}

void ColumnSumRef(const ColumnSumArgs& args, const Exec&) {
  const int64_t width = args.sum.num_elements();
  const double* a = args.a.data<const double>();
  const double* b = args.b.data<const double>();
  double* sum = args.sum.data<double>();
  for (int64_t h = 0; h < width; ++h) sum[h] = 0;
  for (int64_t i = 0; i < args.a.num_elements(); ++i) {
    sum[i % width] += b != nullptr ? a[i] * b[i] : a[i];
  }
}

}  // namespace espalier::elementwise
