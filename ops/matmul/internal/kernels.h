#ifndef ESPALIER_OPS_MATMUL_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_MATMUL_INTERNAL_KERNELS_H_

#include <cstdint>

#include "espalier/runtime/device.h"
#include "espalier/runtime/view.h"

namespace espalier::matmul {

// c = alpha * a b + beta * addend + bias, any strides but c's last of 1; with
// an addend c is contiguous.
struct ProductArgs {
  View a;     // [.., M, K]
  View b;     // [.., K, N]
  View bias;  // [N], may be absent
  double alpha = 1;
  View c;            // [.., M, N]
  View workspace;    // u8 [WorkspaceBytes]
  View addend = {};  // as c, dtype too; contiguous, may be absent
  double beta = 0;   // 0 without an addend
};

// Scratch of ProductCpu.
int64_t WorkspaceBytes(const ProductArgs& args, Isa isa);

void ProductRef(const ProductArgs& args, const Exec& exec);  // all f64
void ProductCpu(const ProductArgs& args, const Exec& exec);  // f32 and bf16

// out[n] = sum over rows of x[.., n], in the order of the rows.
struct ColumnSumArgs {
  View x;    // [.., N], contiguous
  View out;  // [N]
};
void ColumnSumRef(const ColumnSumArgs& args, const Exec& exec);  // all f64
void ColumnSumCpu(const ColumnSumArgs& args, const Exec& exec);

}  // namespace espalier::matmul

#endif  // ESPALIER_OPS_MATMUL_INTERNAL_KERNELS_H_
