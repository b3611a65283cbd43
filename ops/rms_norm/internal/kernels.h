#ifndef ESPALIER_OPS_RMS_NORM_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_RMS_NORM_INTERNAL_KERNELS_H_

#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::rms_norm {

struct ForwardArgs {
  View x;       // [T, H]
  View weight;  // [H]
  double eps;
  View y;     // [T, H]
  View rstd;  // [T] f32, f64 for f64
};

// Rows whose dweight is summed in sequence; the blocks are then summed in
// order.
inline constexpr int64_t kBlockRows = 64;
constexpr int64_t NumBlocks(int64_t rows) {
  return (rows + kBlockRows - 1) / kBlockRows;
}

struct BackwardArgs {
  View dy, x;       // [T, H]
  View weight;      // [H]
  View rstd;        // [T]
  View dx;          // [T, H], may be absent
  View dweight;     // [H], may be absent
  View block_sums;  // [NumBlocks(T), H] f32, f64 for f64; with dweight
};

void ForwardRef(const ForwardArgs& args, const Exec& exec);
void BackwardRef(const BackwardArgs& args, const Exec& exec);
void ForwardCpuF32(const ForwardArgs& args, const Exec& exec);
void ForwardCpuBF16(const ForwardArgs& args, const Exec& exec);
void BackwardCpuF32(const BackwardArgs& args, const Exec& exec);
void BackwardCpuBF16(const BackwardArgs& args, const Exec& exec);

}  // namespace espalier::rms_norm

#endif  // ESPALIER_OPS_RMS_NORM_INTERNAL_KERNELS_H_
