#ifndef ESPALIER_OPS_GROUPED_MATMUL_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_GROUPED_MATMUL_INTERNAL_KERNELS_H_

#include <cstdint>
#include <vector>

#include "espalier/runtime/device.h"
#include "espalier/runtime/packed_weight.h"
#include "espalier/runtime/view.h"

namespace espalier::grouped_matmul {

enum class Form : uint8_t {
  kForward,         // c [T, out] = a [T, in] W^T
  kInputGradient,   // c [T, in] = a [T, out] W
  kWeightGradient,  // c [E, out, in] = a^T b, a dy [T, out], b x [T, in]
};

// All contiguous. In kForward and kInputGradient W is `b` [E, out, in] or, if
// that is absent, `packed`.
struct Args {
  Form form = Form::kForward;
  View a, b, c;
  std::vector<PackedView> packed;  // E
  std::vector<int64_t> offsets;    // E + 1
  View workspace;                  // u8 [WorkspaceBytes]; unused for f64
};

int64_t WorkspaceBytes(const Args& args, Isa isa, int num_threads);

void GroupedRef(const Args& args, const Exec& exec);
void GroupedCpu(const Args& args, const Exec& exec);

}  // namespace espalier::grouped_matmul

#endif  // ESPALIER_OPS_GROUPED_MATMUL_INTERNAL_KERNELS_H_
