#include "espalier/ops/packed_matmul/pack.h"

#include "espalier/ops/packed_matmul/internal/kernels.h"
#include "espalier/ops/packed_matmul/internal/pack_avx512.h"

namespace espalier::packed {

#if defined(ESPALIER_AVX512)
namespace {

// By format, layout.
constexpr gemm::PackBFn* kForwardPack[3][2] = {
    {ForwardMxfp4Rows, ForwardMxfp4Lanes},
    {ForwardInt4Rows, ForwardInt4Lanes},
    {ForwardFp8Rows, ForwardFp8Lanes},
};
constexpr gemm::PackBFn* kGradientPack[3][2] = {
    {GradientMxfp4Rows, GradientMxfp4Lanes},
    {GradientInt4Rows, GradientInt4Lanes},
    {GradientFp8Rows, GradientFp8Lanes},
};
constexpr FewRowsFn* kFewRowsKernels[3] = {FewRowsMxfp4, FewRowsInt4,
                                           FewRowsFp8};

}  // namespace
#endif

gemm::PackBFn* FindPack([[maybe_unused]] const PackedView& weight,
                        Direction direction,
                        [[maybe_unused]] const gemm::Tile& tile) {
#if defined(ESPALIER_AVX512)
  if (tile.isa == Isa::kAvx512Bf16 && tile.compute == gemm::Compute::kBF16) {
    const auto& table =
        direction == Direction::kForward ? kForwardPack : kGradientPack;
    return table[static_cast<int>(weight.format)]
                [static_cast<int>(weight.layout)];
  }
#endif
  return direction == Direction::kForward ? PackForward : PackGradient;
}

FewRowsFn* FindFewRows([[maybe_unused]] const PackedView& weight,
                       [[maybe_unused]] Isa isa) {
#if defined(ESPALIER_AVX512)
  if (isa == Isa::kAvx512Bf16 && weight.layout == PackedLayout::kLanes) {
    return kFewRowsKernels[static_cast<int>(weight.format)];
  }
#endif
  return nullptr;
}

}  // namespace espalier::packed
