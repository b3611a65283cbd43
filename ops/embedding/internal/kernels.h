#ifndef ESPALIER_OPS_EMBEDDING_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_EMBEDDING_INTERNAL_KERNELS_H_

#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::embedding {

struct ForwardArgs {
  View weight;  // [V, H]
  View ids;     // [T] i32
  View y;       // [T, H]
};

struct BackwardArgs {
  View dy;       // [T, H]
  View ids;      // [T] i32
  View dweight;  // [V, H]
  View heads;    // [V] i32: scratch, the last token of each id, or -1
  View chain;    // [T] i32: scratch, the token before with the same id
};

// Rows are copied as bytes, whatever the dtype.
void Forward(const ForwardArgs& args, const Exec& exec);
void BackwardF64(const BackwardArgs& args, const Exec& exec);
void BackwardF32(const BackwardArgs& args, const Exec& exec);
void BackwardBF16(const BackwardArgs& args, const Exec& exec);

}  // namespace espalier::embedding

#endif  // ESPALIER_OPS_EMBEDDING_INTERNAL_KERNELS_H_
