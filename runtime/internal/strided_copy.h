#ifndef ESPALIER_RUNTIME_INTERNAL_STRIDED_COPY_H_
#define ESPALIER_RUNTIME_INTERNAL_STRIDED_COPY_H_

#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::internal {

struct PackArgs {
  View from;  // any strides
  View to;    // contiguous, same shape and dtype, no memory in common
};

// Copies the elements in row-major order.
void PackCpu(const PackArgs& args, const Exec& exec);

}  // namespace espalier::internal

#endif  // ESPALIER_RUNTIME_INTERNAL_STRIDED_COPY_H_
