#include "espalier/ops/linear_cross_entropy/internal/plan.h"

#include <algorithm>

#include "espalier/ops/online_softmax/online_softmax.h"
#include "espalier/ops/scratch_layout.h"

namespace espalier::linear_cross_entropy {

namespace {

// Measured on AMD Zen 4 with H 1024: a tile of scores (4 MB), its rows of x and
// of dx stay in the last level of cache, and each packed operand serves about a
// thousand rows or columns.
constexpr int64_t kTokenChunk = 1008;  // whole tiles of 14, 8 and 6 rows
constexpr int64_t kVocabBlock = 1024;

Plan Cut(const Sizes& sizes, ScratchLayout& layout) {
  Plan plan;
  plan.token_chunk =
      std::min(kTokenChunk, std::max<int64_t>(1, sizes.num_tokens));
  plan.vocab_block = std::min(kVocabBlock, std::max<int64_t>(1, sizes.vocab));
  plan.score_stride = plan.vocab_block + online_softmax::kSlack;
  plan.scores = layout.Bytes(4 * plan.token_chunk * plan.score_stride);
  plan.rows =
      layout.Bytes(plan.token_chunk * sizes.width * SizeOf(sizes.dtype));
  plan.max = layout.Bytes(4 * plan.token_chunk);
  plan.sum = layout.Bytes(4 * plan.token_chunk);
  plan.label_logits = layout.Bytes(4 * plan.token_chunk);
  plan.active = layout.Bytes(4 * sizes.num_tokens);
  return plan;
}

// The most that the products of any rows [1, token_chunk] and of a whole or the
// last block of the vocabulary need: ignored labels leave any number of rows,
// and fewer may need more.
template <typename Most>
int64_t GemmBytes(const Sizes& sizes, const Plan& plan,
                  decltype(ScoreProduct)& product, const Most& most) {
  int64_t bytes = 0;
  for (const int64_t columns :
       {plan.vocab_block, sizes.vocab % plan.vocab_block}) {
    if (columns == 0) continue;
    bytes =
        std::max(bytes, most(product(sizes, plan, plan.token_chunk, columns)));
  }
  return bytes;
}

gemm::GemmArgs Product(const Sizes& sizes, int64_t m, int64_t n, int64_t k) {
  gemm::GemmArgs args;
  args.m = m;
  args.n = n;
  args.k = k;
  args.compute = gemm::ComputeFor(sizes.dtype, sizes.dtype);
  return args;
}

}  // namespace

gemm::GemmArgs ScoreProduct(const Sizes& sizes, const Plan& plan, int64_t rows,
                            int64_t columns) {
  gemm::GemmArgs args = Product(sizes, rows, columns, sizes.width);
  args.a = {nullptr, sizes.dtype, sizes.width, 1};
  args.b = {nullptr, sizes.dtype, sizes.width, 1};
  args.c_stride = plan.score_stride;
  return args;
}

gemm::GemmArgs DxProduct(const Sizes& sizes, const Plan& plan, int64_t rows,
                         int64_t columns) {
  gemm::GemmArgs args = Product(sizes, rows, sizes.width, columns);
  args.a = {nullptr, kF32, plan.score_stride, 1};
  args.b = {nullptr, sizes.dtype, 1, sizes.width};
  args.c_stride = sizes.width;
  return args;
}

gemm::GemmArgs DweightProduct(const Sizes& sizes, const Plan& plan,
                              int64_t rows, int64_t columns) {
  gemm::GemmArgs args = Product(sizes, columns, sizes.width, rows);
  args.a = {nullptr, kF32, 1, plan.score_stride};
  args.b = {nullptr, sizes.dtype, 1, sizes.width};
  args.c_stride = sizes.width;
  return args;
}

Plan PlanForward(const Sizes& sizes, bool with_dx, Isa isa) {
  ScratchLayout layout;
  Plan plan = Cut(sizes, layout);
  const auto most = [isa](const gemm::GemmArgs& args) {
    return gemm::WorkspaceBytesUpToM(args, isa);
  };
  plan.gemm_bytes = GemmBytes(sizes, plan, ScoreProduct, most);
  if (with_dx) {
    plan.gemm_bytes =
        std::max(plan.gemm_bytes, GemmBytes(sizes, plan, DxProduct, most));
  }
  plan.gemm = layout.Bytes(plan.gemm_bytes);
  plan.bytes = layout.bytes();
  return plan;
}

Plan PlanBackward(const Sizes& sizes, Isa isa) {
  ScratchLayout layout;
  Plan plan = Cut(sizes, layout);
  plan.dweight = layout.Bytes(4 * plan.vocab_block * sizes.width);
  const auto most = [isa](const gemm::GemmArgs& args) {
    return gemm::WorkspaceBytesUpToM(args, isa);
  };
  const auto most_up_to_k = [isa](const gemm::GemmArgs& args) {
    return gemm::WorkspaceBytesUpToK(args, isa);
  };
  plan.gemm_bytes =
      std::max({GemmBytes(sizes, plan, ScoreProduct, most),
                GemmBytes(sizes, plan, DxProduct, most),
                GemmBytes(sizes, plan, DweightProduct, most_up_to_k)});
  plan.gemm = layout.Bytes(plan.gemm_bytes);
  plan.bytes = layout.bytes();
  return plan;
}

}  // namespace espalier::linear_cross_entropy
