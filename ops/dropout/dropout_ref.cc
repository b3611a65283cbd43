#include "espalier/ops/dropout/internal/kernels.h"

namespace espalier::dropout {

void Ref(const Args& args, const Exec&) {
  const double* x = args.x.data<const double>();
  double* y = args.y.data<double>();
  for (int64_t i = 0; i < args.y.num_elements(); ++i) {
    const uint32_t bits =
        args.run.rng.Bits(args.run.first + static_cast<uint64_t>(i));
    y[i] = bits >= args.threshold ? x[i] * args.factor : 0;
  }
}

}  // namespace espalier::dropout
