#include <cmath>

#include "espalier/ops/short_conv/internal/kernels.h"

namespace espalier::short_conv {

namespace {

template <typename Fn>
void ForEachDocument(const std::vector<int32_t>& at, Fn fn) {
  for (size_t i = 0; i + 1 < at.size(); ++i) {
    fn(Document{static_cast<int64_t>(i), at[i], at[i + 1]});
  }
}

// Element c of a row; 0 of an absent one.
double At(const double* row, int64_t c) { return row == nullptr ? 0 : row[c]; }

template <class Args>
double WeightAt(const Args& args, int64_t c, int64_t j) {
  return args.weight.template data<const double>()[c * args.num_taps + j];
}

// The sum before the activation at a position of a document.
template <class Args>
double SumAt(const Args& args, const Document& document, int64_t position,
             int64_t c) {
  double sum = 0;
  for (int64_t j = 0; j < args.num_taps; ++j) {
    sum += WeightAt(args, c, j) *
           At(RowAt<double>(args.x, args.initial, args.num_taps, document,
                            position - (args.num_taps - 1) + j),
              c);
  }
  return sum;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Where a row of a document goes that may be of its initial state.
double* GradientAt(const BackwardArgs& args, const Document& document,
                   int64_t position) {
  const View& to = position >= 0 ? args.dx : args.dinitial;
  if (!to) return nullptr;
  return const_cast<double*>(RowAt<double>(args.dx ? args.dx : args.x,
                                           args.dinitial, args.num_taps,
                                           document, position));
}

void Clear(const View& view) {
  if (view) std::fill_n(view.data<double>(), view.num_elements(), 0.0);
}

}  // namespace

void ForwardRef(const ForwardArgs& args, const Exec&) {
  const int64_t width = args.x.dim(1);
  const int64_t past = args.num_taps - 1;
  ForEachDocument(*args.cu_seqlens, [&](const Document& document) {
    const int64_t length = document.end - document.begin;
    for (int64_t i = 0; i < length; ++i) {
      for (int64_t c = 0; c < width; ++c) {
        const double p = SumAt(args, document, i, c);
        args.y.data<double>()[(document.begin + i) * width + c] =
            args.silu ? p * Sigmoid(p) : p;
      }
    }
    for (int64_t r = 0; args.final_state && r < past; ++r) {
      const double* row = RowAt<double>(args.x, args.initial, args.num_taps,
                                        document, length - past + r);
      double* to =
          args.final_state.data<double>() + (document.index * past + r) * width;
      for (int64_t c = 0; c < width; ++c) to[c] = At(row, c);
    }
  });
}

void BackwardRef(const BackwardArgs& args, const Exec&) {
  const int64_t width = args.x.dim(1);
  const int64_t past = args.num_taps - 1;
  Clear(args.dx);
  Clear(args.dweight);
  Clear(args.dinitial);
  ForEachDocument(*args.cu_seqlens, [&](const Document& document) {
    const int64_t length = document.end - document.begin;
    for (int64_t i = 0; i < length; ++i) {
      for (int64_t c = 0; c < width; ++c) {
        double dp =
            args.dy.data<const double>()[(document.begin + i) * width + c];
        if (args.silu) {
          const double p = SumAt(args, document, i, c);
          dp *= Sigmoid(p) * (1 + p * (1 - Sigmoid(p)));
        }
        for (int64_t j = 0; j < args.num_taps; ++j) {
          const double* row = RowAt<double>(args.x, args.initial, args.num_taps,
                                            document, i - past + j);
          if (args.dweight) {
            args.dweight.data<double>()[c * args.num_taps + j] +=
                dp * At(row, c);
          }
          double* to = GradientAt(args, document, i - past + j);
          if (to != nullptr) to[c] += dp * WeightAt(args, c, j);
        }
      }
    }
    for (int64_t r = 0; args.dfinal && r < past; ++r) {
      double* to = GradientAt(args, document, length - past + r);
      const double* from = args.dfinal.data<const double>() +
                           (document.index * past + r) * width;
      for (int64_t c = 0; to != nullptr && c < width; ++c) to[c] += from[c];
    }
  });
}

}  // namespace espalier::short_conv
