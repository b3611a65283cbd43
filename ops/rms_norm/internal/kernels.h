#ifndef ESPALIER_OPS_RMS_NORM_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_RMS_NORM_INTERNAL_KERNELS_H_

#include "espalier/ops/rms_norm/rms_norm.h"
#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::rms_norm {

struct ForwardArgs {
  View x;       // [T, H]
  View weight;  // [H] as x or f32
  View gate;    // [T, H], may be absent
  double eps;
  NormWeight form;
  NormGate activation;  // with a gate
  View y;               // [T, H]
  View rstd;            // [T] f32, f64 for f64
};

struct BackwardArgs {
  View dy, x;   // [T, H]
  View weight;  // [H]
  View gate;    // [T, H], may be absent
  View rstd;    // [T]
  NormWeight form;
  NormGate activation;  // with a gate
  View dx;              // [T, H], may be absent
  View dweight;         // as weight, may be absent
  View dgate;           // [T, H], may be absent
  View block_sums;      // [NumBlocks(T), H] f32, with dweight; unused for f64
};

void ForwardRef(const ForwardArgs& args, const Exec& exec);
void BackwardRef(const BackwardArgs& args, const Exec& exec);
// T: float, BFloat16.
template <typename T>
void ForwardCpu(const ForwardArgs& args, const Exec& exec);
template <typename T>
void BackwardCpu(const BackwardArgs& args, const Exec& exec);

}  // namespace espalier::rms_norm

#endif  // ESPALIER_OPS_RMS_NORM_INTERNAL_KERNELS_H_
