#ifndef ESPALIER_OPS_GEMM_INTERNAL_TILES_H_
#define ESPALIER_OPS_GEMM_INTERNAL_TILES_H_

#include "espalier/ops/gemm/tile.h"

// The kernels that tile.cc chooses from; each is defined in the file of its
// instruction set.
namespace espalier::gemm {

extern const Tile kTileAvx2F32;
extern const Tile kTileAvx2Bf16;  // widened to f32 by the packing
extern const Tile kTileAvx512F32;
extern const Tile kTileAvx512Bf16Widened;
extern const Tile kTileAvx512Bf16;  // vdpbf16ps
extern const Tile kTileNeonF32;
extern const Tile kTileNeonBf16;

}  // namespace espalier::gemm

#endif  // ESPALIER_OPS_GEMM_INTERNAL_TILES_H_
