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
  // b as panels made by PanelsCpu for a's dtype: `b` is a matrix of shape and
  // dtype alone.
  bool prepared = false;
  View panels = {};
  double beta = 0;  // 0 without an addend
};

// Scratch of ProductCpu.
int64_t WorkspaceBytes(const ProductArgs& args, Isa isa);

void ProductRef(const ProductArgs& args, const Exec& exec);  // all f64
void ProductCpu(const ProductArgs& args, const Exec& exec);  // f32 and bf16

// A weight [out, in] as the B of a product: W^T, or W for the input gradient.
struct PanelsArgs {
  View weight;
  DType activations = kF32;  // dtype of the product's a
  bool input_gradient = false;
  View panels;  // u8 [PanelsBytes]
};
int64_t PanelsBytes(const PanelsArgs& args, Isa isa);
void PanelsCpu(const PanelsArgs& args, const Exec& exec);

// out[n] = sum over rows of x[.., n], in the order of the rows.
struct ColumnSumArgs {
  View x;    // [.., N], contiguous
  View out;  // [N]
};
void ColumnSumRef(const ColumnSumArgs& args, const Exec& exec);  // all f64
void ColumnSumCpu(const ColumnSumArgs& args, const Exec& exec);

}  // namespace espalier::matmul

#endif  // ESPALIER_OPS_MATMUL_INTERNAL_KERNELS_H_
