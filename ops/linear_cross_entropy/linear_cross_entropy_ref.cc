#include <cmath>

#include "espalier/ops/linear_cross_entropy/internal/kernels.h"

namespace espalier::linear_cross_entropy {

namespace {

double Dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void AddScaled(double scale, const double* x, int64_t n, double* y) {
  for (int64_t i = 0; i < n; ++i) y[i] += scale * x[i];
}

void SetZero(const View& view) {
  if (!view) return;
  double* data = view.data<double>();
  for (int64_t i = 0; i < view.num_elements(); ++i) data[i] = 0;
}

double LogSumExp(const ForwardArgs& args, const double* x) {
  const int64_t width = args.x.dim(1);
  const double* weight = args.weight.data<const double>();
  double highest = -INFINITY;
  double sum = 0;
  for (int64_t v = 0; v < args.weight.dim(0); ++v) {
    const double logit = args.logit_scale * Dot(x, weight + v * width, width);
    if (logit > highest) {
      sum = sum * std::exp(highest - logit) + 1;
      highest = logit;
    } else {
      sum += std::exp(logit - highest);
    }
  }
  return highest + std::log(sum);
}

// Adds the gradient of one token, times `scale`, to dx and dweight (each may be
// null).
template <typename Args>
void AddGradients(const Args& args, int64_t t, double lse, double scale,
                  double* dx, double* dweight) {
  const int64_t width = args.x.dim(1);
  const double* x = args.x.template data<const double>() + t * width;
  const double* weight = args.weight.template data<const double>();
  const int64_t label = LabelAt(args.labels, t);
  for (int64_t v = 0; v < args.weight.dim(0); ++v) {
    const double* row = weight + v * width;
    const double p = std::exp(args.logit_scale * Dot(x, row, width) - lse);
    const double dlogit =
        scale * args.logit_scale *
        (p * (1 + 2 * args.z_loss * lse) - (v == label ? 1 : 0));
    if (dx != nullptr) AddScaled(dlogit, row, width, dx);
    if (dweight != nullptr) AddScaled(dlogit, x, width, dweight + v * width);
  }
}

}  // namespace

void ForwardRef(const ForwardArgs& args, const Exec&) {
  const int64_t width = args.x.dim(1);
  const double* weight = args.weight.data<const double>();
  double loss = 0;
  double weight_sum = 0;
  SetZero(args.dx);
  for (int64_t t = 0; t < args.x.dim(0); ++t) {
    const double* x = args.x.data<const double>() + t * width;
    const int64_t label = LabelAt(args.labels, t);
    const bool ignored = label == args.ignore_index;
    args.token_losses.data<double>()[t] = 0;
    args.lse.data<double>()[t] = 0;
    if (ignored) continue;
    const double token_weight = WeightAt(args.token_weights, t, ignored);
    const double lse = LogSumExp(args, x);
    const double token_loss =
        lse - args.logit_scale * Dot(x, weight + label * width, width);
    args.token_losses.data<double>()[t] = token_loss;
    args.lse.data<double>()[t] = lse;
    weight_sum += token_weight;
    loss += token_weight * (token_loss + args.z_loss * lse * lse);
    if (args.dx) {
      AddGradients(args, t, lse, token_weight,
                   args.dx.data<double>() + t * width, nullptr);
    }
  }
  *args.loss.data<double>() = loss;
  *args.weight_sum.data<double>() = weight_sum;
}

void BackwardRef(const BackwardArgs& args, const Exec&) {
  const int64_t width = args.x.dim(1);
  const double dloss = *args.dloss.data<const double>();
  SetZero(args.dx);
  SetZero(args.dweight);
  for (int64_t t = 0; t < args.x.dim(0); ++t) {
    const bool ignored = LabelAt(args.labels, t) == args.ignore_index;
    if (ignored) continue;
    AddGradients(args, t, args.lse.data<const double>()[t],
                 dloss * WeightAt(args.token_weights, t, ignored),
                 args.dx ? args.dx.data<double>() + t * width : nullptr,
                 args.dweight.data<double>());
  }
}

void ScaleRef(const ScaleArgs& args, const Exec&) {
  const double scale = *args.scale.data<const double>();
  for (int64_t i = 0; i < args.in.num_elements(); ++i) {
    args.out.data<double>()[i] = scale * args.in.data<const double>()[i];
  }
}

void LogitsRef(const LogitsArgs& args, const Exec&) {
  const int64_t width = args.x.dim(1);
  const int64_t vocab = args.weight.dim(0);
  for (int64_t t = 0; t < args.x.dim(0); ++t) {
    for (int64_t v = 0; v < vocab; ++v) {
      args.logits.data<double>()[t * vocab + v] =
          args.logit_scale * Dot(args.x.data<const double>() + t * width,
                                 args.weight.data<const double>() + v * width,
                                 width);
    }
  }
}

}  // namespace espalier::linear_cross_entropy
