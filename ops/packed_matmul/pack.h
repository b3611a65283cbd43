#ifndef ESPALIER_OPS_PACKED_MATMUL_PACK_H_
#define ESPALIER_OPS_PACKED_MATMUL_PACK_H_

#include <cstdint>

#include "espalier/ops/gemm/gemm.h"
#include "espalier/ops/packed_matmul/panel_products.h"
#include "espalier/runtime/packed_weight.h"

// Packed weights as the B operand of products: decoded to f32, or to bf16 with
// one rounding of the f32 value, on the way into a panel. `source` is the
// const PackedView* of the weight.
namespace espalier::packed {

enum class Direction : uint8_t {
  kForward,        // B = W^T [in, out]: lanes are output features
  kInputGradient,  // B = W [out, in]: lanes are input features, ranges from
                   // multiples of 32 on
};

// How to pack `weight` for `tile`; never null.
gemm::PackBFn* FindPack(const PackedView& weight, Direction direction,
                        const gemm::Tile& tile);

// The kernels that decode in registers, for rows of bf16 forward; none where
// the instruction set has none.
Fused FindFused(const PackedView& weight, Isa isa);

}  // namespace espalier::packed

#endif  // ESPALIER_OPS_PACKED_MATMUL_PACK_H_
