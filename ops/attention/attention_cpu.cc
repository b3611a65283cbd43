#include <vector>

#include "espalier/ops/attention/internal/kernels.h"

namespace espalier::attention {

namespace {

// Copies of narrow operands in f64, for the plain loops of attention_ref.cc.
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

void Forward(const ForwardArgs& args, const Exec& exec) {
  const Wide q(args.q), k(args.k), v(args.v), sinks(args.sinks), o(args.o),
      lse(args.lse);
  ForwardRef({q.view, k.view, v.view, sinks.view, args.cu_seqlens, args.mask,
              o.view, lse.view},
             exec);
  o.WriteBack(args.o);
  lse.WriteBack(args.lse);
}

void Backward(const BackwardArgs& args, const Exec& exec) {
  const Wide dout(args.dout), q(args.q), k(args.k), v(args.v),
      sinks(args.sinks), o(args.o), lse(args.lse);
  const Wide dq(args.dq), dk(args.dk), dv(args.dv), dsinks(args.dsinks);
  BackwardRef(
      {dout.view, q.view, k.view, v.view, sinks.view, o.view, lse.view,
       args.cu_seqlens, args.mask, dq.view, dk.view, dv.view, dsinks.view},
      exec);
  dq.WriteBack(args.dq);
  dk.WriteBack(args.dk);
  dv.WriteBack(args.dv);
  dsinks.WriteBack(args.dsinks);
}

}  // namespace

void ForwardCpuF32(const ForwardArgs& args, const Exec& exec) {
  Forward(args, exec);
}
void ForwardCpuBF16(const ForwardArgs& args, const Exec& exec) {
  Forward(args, exec);
}
void BackwardCpuF32(const BackwardArgs& args, const Exec& exec) {
  Backward(args, exec);
}
void BackwardCpuBF16(const BackwardArgs& args, const Exec& exec) {
  Backward(args, exec);
}

}  // namespace espalier::attention
