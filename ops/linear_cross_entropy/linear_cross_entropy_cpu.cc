#include <vector>

#include "espalier/ops/linear_cross_entropy/internal/kernels.h"

namespace espalier::linear_cross_entropy {

namespace {

// Copies of narrow operands in f64, for the plain loops of the reference.
struct Wide {
  explicit Wide(const View& narrow) : view(narrow) {
    if (!narrow) return;
    values.resize(static_cast<size_t>(narrow.num_elements()));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = narrow.dtype == kF32
                      ? static_cast<double>(narrow.data<const float>()[i])
                      : static_cast<float>(narrow.data<const BFloat16>()[i]);
    }
    view.pointer = values.data();
    if (values.empty()) view.pointer = &view;
  }
  void WriteBack(const View& narrow) const {
    for (size_t i = 0; i < values.size(); ++i) {
      if (narrow.dtype == kF32) {
        narrow.data<float>()[i] = static_cast<float>(values[i]);
      } else {
        narrow.data<BFloat16>()[i] = BFloat16(values[i]);
      }
    }
  }
  std::vector<double> values;
  View view;
};

}  // namespace

void ForwardCpuF32(const ForwardArgs& args, const Exec& exec) {
  const Wide x(args.x), weight(args.weight);
  const Wide loss(args.loss), weight_sum(args.weight_sum),
      token_losses(args.token_losses), lse(args.lse), dx(args.dx);
  ForwardArgs wide = args;
  wide.x = x.view;
  wide.weight = weight.view;
  wide.loss = loss.view;
  wide.weight_sum = weight_sum.view;
  wide.token_losses = token_losses.view;
  wide.lse = lse.view;
  wide.dx = dx.view;
  ForwardRef(wide, exec);
  loss.WriteBack(args.loss);
  weight_sum.WriteBack(args.weight_sum);
  token_losses.WriteBack(args.token_losses);
  lse.WriteBack(args.lse);
  dx.WriteBack(args.dx);
}

void BackwardCpuF32(const BackwardArgs& args, const Exec& exec) {
  const Wide dloss(args.dloss), x(args.x), weight(args.weight), lse(args.lse);
  const Wide dx(args.dx), dweight(args.dweight);
  BackwardArgs wide = args;
  wide.dloss = dloss.view;
  wide.x = x.view;
  wide.weight = weight.view;
  wide.lse = lse.view;
  wide.dx = dx.view;
  wide.dweight = dweight.view;
  BackwardRef(wide, exec);
  dx.WriteBack(args.dx);
  dweight.WriteBack(args.dweight);
}

void ScaleCpuF32(const ScaleArgs& args, const Exec& exec) {
  const Wide scale(args.scale), in(args.in), out(args.out);
  ScaleRef({scale.view, in.view, out.view}, exec);
  out.WriteBack(args.out);
}

void LogitsCpuF32(const LogitsArgs& args, const Exec& exec) {
  const Wide x(args.x), weight(args.weight), logits(args.logits);
  LogitsRef({x.view, weight.view, args.logit_scale, logits.view}, exec);
  logits.WriteBack(args.logits);
}

void ForwardCpuBF16(const ForwardArgs& args, const Exec& exec) {
  ForwardCpuF32(args, exec);
}
void BackwardCpuBF16(const BackwardArgs& args, const Exec& exec) {
  BackwardCpuF32(args, exec);
}
void ScaleCpuBF16(const ScaleArgs& args, const Exec& exec) {
  ScaleCpuF32(args, exec);
}
void LogitsCpuBF16(const LogitsArgs& args, const Exec& exec) {
  LogitsCpuF32(args, exec);
}

}  // namespace espalier::linear_cross_entropy
