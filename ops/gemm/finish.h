#ifndef ESPALIER_OPS_GEMM_FINISH_H_
#define ESPALIER_OPS_GEMM_FINISH_H_

#include <cstdint>

#include "espalier/ops/gemm/tile.h"

namespace espalier::gemm {

// Writes args.rows x args.cols elements of a tile, [rows][tile_stride], to
// where args.store says: the way for edges and for every kFinish. args.cols is
// at most 4 * kLanes.
void FinishTile(const float* tile, int64_t tile_stride, const TileArgs& args);

}  // namespace espalier::gemm

#endif  // ESPALIER_OPS_GEMM_FINISH_H_
