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
// Decoding INT4 keeps the multipliers busy as well, so that from some height
// on it is better done once for all rows.
constexpr int64_t kAnyRows = int64_t{1} << 40;
// Rows that stay in L2 beside a panel; more where each panel has to be laid
// out first.
constexpr int64_t kLanesABytes = int64_t{1} << 19;
constexpr int64_t kRowsABytes = int64_t{1} << 20;
constexpr Fused kFused[3] = {
    {FusedMxfp4, FusedScratchMxfp4, kAnyRows, 0},
    {FusedInt4, FusedScratchInt4, 48, 0},
    {FusedFp8, FusedScratchFp8, kAnyRows, 0},
};

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

Fused FindFused([[maybe_unused]] const PackedView& weight,
                [[maybe_unused]] Isa isa) {
#if defined(ESPALIER_AVX512)
  if (isa == Isa::kAvx512Bf16) {
    Fused fused = kFused[static_cast<int>(weight.format)];
    fused.a_bytes =
        weight.layout == PackedLayout::kLanes ? kLanesABytes : kRowsABytes;
    return fused;
  }
#endif
  return {};
}

}  // namespace espalier::packed
