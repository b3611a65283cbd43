#include "espalier/ops/grouped_matmul/internal/kernels.h"

namespace espalier::grouped_matmul {
namespace {

double WeightAt(const Args& args, int64_t expert, int64_t row, int64_t column) {
  if (!args.b) {
    return DecodeElement(args.packed[static_cast<size_t>(expert)], row, column);
  }
  return args.b
      .data<double>()[(expert * args.b.dim(1) + row) * args.b.dim(2) + column];
}

// Rows of one group.
void Rows(const Args& args, int64_t expert, int64_t begin, int64_t end) {
  const bool forward = args.form == Form::kForward;
  const int64_t num_k = args.a.dim(1);
  const int64_t num_columns = args.c.dim(1);
  for (int64_t n = 0; n < num_columns; ++n) {
    for (int64_t t = begin; t < end; ++t) {
      double sum = 0;
      for (int64_t k = 0; k < num_k; ++k) {
        const double w = forward ? WeightAt(args, expert, n, k)
                                 : WeightAt(args, expert, k, n);
        sum += args.a.data<double>()[t * num_k + k] * w;
      }
      args.c.data<double>()[t * num_columns + n] = sum;
    }
  }
}

void Weight(const Args& args, int64_t expert, int64_t begin, int64_t end) {
  const int64_t out = args.c.dim(1);
  const int64_t in = args.c.dim(2);
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t i = 0; i < in; ++i) {
      double sum = 0;
      for (int64_t t = begin; t < end; ++t) {
        sum += args.a.data<double>()[t * out + o] *
               args.b.data<double>()[t * in + i];
      }
      args.c.data<double>()[(expert * out + o) * in + i] = sum;
    }
  }
}

}  // namespace

void GroupedRef(const Args& args, const Exec&) {
  for (size_t e = 0; e + 1 < args.offsets.size(); ++e) {
    const auto expert = static_cast<int64_t>(e);
    if (args.form == Form::kWeightGradient) {
      Weight(args, expert, args.offsets[e], args.offsets[e + 1]);
    } else {
      Rows(args, expert, args.offsets[e], args.offsets[e + 1]);
    }
  }
}

}  // namespace espalier::grouped_matmul
