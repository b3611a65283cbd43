#ifndef ESPALIER_OPS_PACKED_MATMUL_INTERNAL_KERNELS_H_
#define ESPALIER_OPS_PACKED_MATMUL_INTERNAL_KERNELS_H_

#include <cstdint>

#include "espalier/ops/packed_matmul/pack.h"
#include "espalier/runtime/device.h"
#include "espalier/runtime/packed_weight.h"
#include "espalier/runtime/view.h"

namespace espalier::packed {

// y [T, N] = alpha x [T, K] B + beta addend + bias, where B is W^T (forward: N
// out, K in) or W (input gradient: x is dy, y is dx, N in, K out).
struct LinearArgs {
  View x;
  PackedView weight;
  Direction direction = Direction::kForward;
  View y;
  View workspace;    // u8 [LinearWorkspaceBytes]; unused for f64
  View bias = {};    // [N], may be absent
  View addend = {};  // as y, may be absent
  double alpha = 1;
  double beta = 0;  // 0 without an addend
};

int64_t LinearWorkspaceBytes(const LinearArgs& args, Isa isa, int num_threads);

void LinearRef(const LinearArgs& args, const Exec& exec);
void LinearCpu(const LinearArgs& args, const Exec& exec);

struct PrepareArgs {
  PackedView rows;
  View codes;   // of the lane layout
  View scales;  // likewise; empty where the scales stay
};

void PrepareCpu(const PrepareArgs& args, const Exec& exec);

// Packing by plain loops, for every tile, format, layout.
void PackForward(const void* source, const gemm::Tile& tile,
                 const gemm::PackArgs& args);
void PackGradient(const void* source, const gemm::Tile& tile,
                  const gemm::PackArgs& args);

// value(code) * scale, rounded to f32, of columns [column, column + count) of
// a row.
void DecodeColumns(const PackedView& weight, int64_t row, int64_t column,
                   int64_t count, float* values);

}  // namespace espalier::packed

#endif  // ESPALIER_OPS_PACKED_MATMUL_INTERNAL_KERNELS_H_
