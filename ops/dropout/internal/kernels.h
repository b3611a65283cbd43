#ifndef ESPALIER_OPS_DROPOUT_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_DROPOUT_INTERNAL_KERNELS_H_

#include <cstdint>

#include "espalier/autograd/rng_stream.h"
#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::dropout {

struct Args {
  View x, y;  // same shape, contiguous
  autograd::RandomRun run;
  uint32_t threshold;  // numbers below it drop
  double factor;       // 1 / (1 - rate)
};

void Ref(const Args& args, const Exec& exec);
// T: float, BFloat16.
template <typename T>
void Cpu(const Args& args, const Exec& exec);

}  // namespace espalier::dropout

#endif  // ESPALIER_OPS_DROPOUT_INTERNAL_KERNELS_H_
