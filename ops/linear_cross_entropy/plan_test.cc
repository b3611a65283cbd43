#include "espalier/ops/linear_cross_entropy/internal/plan.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace espalier::linear_cross_entropy {
namespace {

int64_t Needs(const Sizes& sizes, const Plan& plan, int64_t rows, bool backward,
              Isa isa) {
  int64_t bytes = 0;
  for (int64_t vocab = 0; vocab < sizes.vocab; vocab += plan.vocab_block) {
    const int64_t columns = std::min(plan.vocab_block, sizes.vocab - vocab);
    bytes = std::max(
        {bytes,
         gemm::WorkspaceBytes(ScoreProduct(sizes, plan, rows, columns), isa),
         gemm::WorkspaceBytes(DxProduct(sizes, plan, rows, columns), isa)});
    if (!backward) continue;
    bytes = std::max(
        bytes,
        gemm::WorkspaceBytes(DweightProduct(sizes, plan, rows, columns), isa));
  }
  return bytes;
}

// Ignored labels may leave any number of rows.
TEST(LinearCrossEntropyPlanTest, HasScratchForEveryNumberOfRows) {
  for (const Isa isa : {BaselineIsa(), DetectIsa()}) {
    for (const DType dtype : {kF32, kBF16}) {
      for (const int64_t width : {5, 576, 1024, 2100}) {
        for (const int64_t vocab : {1, 517, 2500}) {
          for (const int64_t tokens : {1, 49, 513, 520, 700, 1500}) {
            const Sizes sizes = {tokens, width, vocab, dtype};
            const Plan forward = PlanForward(sizes, true, isa);
            const Plan backward = PlanBackward(sizes, isa);
            EXPECT_LE(forward.gemm + forward.gemm_bytes, forward.bytes);
            EXPECT_LE(backward.gemm + backward.gemm_bytes, backward.bytes);
            for (int64_t rows = 1; rows <= forward.token_chunk; ++rows) {
              ASSERT_LE(Needs(sizes, forward, rows, false, isa),
                        forward.gemm_bytes)
                  << rows << " of " << tokens << " rows, H " << width << ", V "
                  << vocab;
              ASSERT_LE(Needs(sizes, backward, rows, true, isa),
                        backward.gemm_bytes)
                  << rows << " of " << tokens << " rows, H " << width << ", V "
                  << vocab;
            }
          }
        }
      }
    }
  }
}

TEST(LinearCrossEntropyPlanTest, NoTokensOrNoVocabularyNeedNothing) {
  for (const Sizes& sizes : {Sizes{0, 8, 30, kF32}, Sizes{9, 8, 0, kBF16}}) {
    const Plan plan = PlanForward(sizes, true, DetectIsa());
    EXPECT_EQ(plan.token_chunk, std::max<int64_t>(1, sizes.num_tokens));
    EXPECT_LE(plan.gemm + plan.gemm_bytes, plan.bytes);
  }
}

}  // namespace
}  // namespace espalier::linear_cross_entropy
