#ifndef ESPALIER_OPS_PACKED_MATMUL_INTERNAL_PACK_AVX512_H_
#define ESPALIER_OPS_PACKED_MATMUL_INTERNAL_PACK_AVX512_H_

#include "espalier/ops/gemm/tile.h"
#include "espalier/ops/packed_matmul/panel_products.h"

// Kernels for panels of bf16 pairs, one per format and layout.
namespace espalier::packed {

void ForwardMxfp4Lanes(const void* source, const gemm::Tile& tile,
                       const gemm::PackArgs& args);
void ForwardMxfp4Rows(const void* source, const gemm::Tile& tile,
                      const gemm::PackArgs& args);
void ForwardInt4Lanes(const void* source, const gemm::Tile& tile,
                      const gemm::PackArgs& args);
void ForwardInt4Rows(const void* source, const gemm::Tile& tile,
                     const gemm::PackArgs& args);
void ForwardFp8Lanes(const void* source, const gemm::Tile& tile,
                     const gemm::PackArgs& args);
void ForwardFp8Rows(const void* source, const gemm::Tile& tile,
                    const gemm::PackArgs& args);

void GradientMxfp4Lanes(const void* source, const gemm::Tile& tile,
                        const gemm::PackArgs& args);
void GradientMxfp4Rows(const void* source, const gemm::Tile& tile,
                       const gemm::PackArgs& args);
void GradientInt4Lanes(const void* source, const gemm::Tile& tile,
                       const gemm::PackArgs& args);
void GradientInt4Rows(const void* source, const gemm::Tile& tile,
                      const gemm::PackArgs& args);
void GradientFp8Lanes(const void* source, const gemm::Tile& tile,
                      const gemm::PackArgs& args);
void GradientFp8Rows(const void* source, const gemm::Tile& tile,
                     const gemm::PackArgs& args);

// Products of FusedArgs, and the scratch for m rows.
bool FusedMxfp4(const FusedArgs& args);
bool FusedInt4(const FusedArgs& args);
bool FusedFp8(const FusedArgs& args);
int64_t FusedScratchMxfp4(const void* source, int64_t m);
int64_t FusedScratchInt4(const void* source, int64_t m);
int64_t FusedScratchFp8(const void* source, int64_t m);

}  // namespace espalier::packed

#endif  // ESPALIER_OPS_PACKED_MATMUL_INTERNAL_PACK_AVX512_H_
