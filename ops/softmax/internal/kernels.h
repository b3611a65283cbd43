#ifndef ESPALIER_OPS_SOFTMAX_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_SOFTMAX_INTERNAL_KERNELS_H_

#include <cstdint>

#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::softmax {

// Columns whose exponentials are taken at once, from one maximum.
inline constexpr int64_t kColumns = 4096;

// Floats of scratch for a row: exponentials and the maxima of its pieces, in
// whole cache lines.
constexpr int64_t ScratchWidth(int64_t width) {
  return RoundUp(width + CeilDiv(width, kColumns), 16);
}

struct ForwardArgs {
  View x, y;     // [T, H]
  View scratch;  // [threads, ScratchWidth(H)] f32; unused for f64
};
struct BackwardArgs {
  View dy, y, dx;  // [T, H]
};

void ForwardRef(const ForwardArgs& args, const Exec& exec);
void BackwardRef(const BackwardArgs& args, const Exec& exec);
// T: float, BFloat16.
template <typename T>
void ForwardCpu(const ForwardArgs& args, const Exec& exec);
template <typename T>
void BackwardCpu(const BackwardArgs& args, const Exec& exec);

}  // namespace espalier::softmax

#endif  // ESPALIER_OPS_SOFTMAX_INTERNAL_KERNELS_H_
