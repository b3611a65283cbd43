#include "espalier/ops/gemm/tile.h"

#include "espalier/ops/gemm/internal/tiles.h"

namespace espalier::gemm {

const Tile& FindTile(Isa isa, Compute compute) {
  const bool bf16 = compute == Compute::kBF16;
  switch (isa) {
#if defined(ESPALIER_ARM64)
    default:
      return bf16 ? kTileNeonBf16 : kTileNeonF32;
#else
#if defined(ESPALIER_AVX512)
    case Isa::kAvx512Bf16:
      return bf16 ? kTileAvx512Bf16 : kTileAvx512F32;
    case Isa::kAvx512:
      return bf16 ? kTileAvx512Bf16Widened : kTileAvx512F32;
#endif
    default:
      return bf16 ? kTileAvx2Bf16 : kTileAvx2F32;
#endif
  }
}

}  // namespace espalier::gemm
