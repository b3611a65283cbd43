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

bool FewRowsMxfp4(const FewRowsArgs& args);
bool FewRowsInt4(const FewRowsArgs& args);
bool FewRowsFp8(const FewRowsArgs& args);

}  // namespace espalier::packed

#endif  // ESPALIER_OPS_PACKED_MATMUL_INTERNAL_PACK_AVX512_H_
