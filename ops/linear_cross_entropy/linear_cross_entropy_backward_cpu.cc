#include <algorithm>
#include <cmath>
#include <cstring>

#include "espalier/ops/linear_cross_entropy/internal/chunk.h"
#include "espalier/ops/linear_cross_entropy/internal/kernels.h"
#include "espalier/ops/linear_cross_entropy/internal/rows.h"
#include "espalier/ops/online_softmax/online_softmax.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::linear_cross_entropy {

namespace {

// Walks the vocabulary, so that a block of dweight is finished at once, after
// the last look at the powers that lie there.
class BackwardPass : Pass<BackwardArgs> {
 public:
  BackwardPass(const BackwardArgs& args, const Exec& exec)
      : Pass(args, exec),
        dweight_(PartOf<float>(args.workspace, plan_.dweight)) {}

  void Run() {
    const int64_t count = ListTokens();
    if (count == 0) {
      std::fill_n(dweight_, plan_.vocab_block * sizes_.width, 0.0f);
    }
    for (int64_t v = 0; v < sizes_.vocab; v += plan_.vocab_block) {
      SetBlock(v);
      for (int64_t row = 0; row < count; row += plan_.token_chunk) {
        SetChunk(row, std::min(plan_.token_chunk, count - row));
        RunChunk();
      }
      StoreDweight();
    }
    if (args_.dx) StoreDx(count);
  }

 private:
  void RunChunk() {
    ComputeScores(kept_);
    ForEachRow([this](int64_t r) { ScoreGradient(r); });
    if (args_.dx) AddToDx(args_.dx_sum);
    gemm::GemmArgs dweight = DweightProduct(sizes_, plan_, count_, columns_);
    dweight.a.data = scores_;
    dweight.b.data = x_;
    dweight.c = dweight_;
    dweight.beta = first_ == 0 ? 0 : 1;
    gemm::Gemm(dweight, exec_, gemm_);
  }

  // Row r of scores becomes the gradient of the loss by x weight^T.
  void ScoreGradient(int64_t r) const {
    const int64_t t = TokenOf(r);
    const double lse = args_.lse.data<const float>()[t];
    const double factor = *args_.dloss.data<const float>() * args_.logit_scale *
                          WeightAt(args_.token_weights, t, false);
    const double max = BlockMaxOf(r);
    float* scores = ScoresOf(r);
    ProbabilityRow({.scores = scores,
                    .count = columns_,
                    .scale = static_cast<float>(args_.logit_scale),
                    .max = BlockMaxOf(r),
                    .factor = static_cast<float>(
                        factor * (1 + 2 * args_.z_loss * lse) *
                        std::exp2(max - lse * online_softmax::kLog2E)),
                    .dtype = sizes_.dtype,
                    .powers = r < kept_ ? PowersOf(r) : nullptr},
                   exec_.isa);
    const int64_t label = LabelAt(args_.labels, t) - vocab_;
    if (label < 0 || label >= columns_) return;
    scores[label] -= static_cast<float>(factor);
  }

  void Store(const float* from, void* to) const {
    const float one = 1;
    online_softmax::ScaleRows({.from = from,
                               .factors = &one,
                               .rows = 1,
                               .width = sizes_.width,
                               .to = to,
                               .to_dtype = sizes_.dtype},
                              exec_.isa);
  }

  void StoreDweight() const {
    exec_.pool.ParallelFor(columns_, kRowGrain,
                           [&](int64_t begin, int64_t end) {
                             for (int64_t v = begin; v < end; ++v) {
                               Store(dweight_ + v * sizes_.width,
                                     RowOf(args_.dweight, vocab_ + v));
                             }
                           });
  }

  // Rows of active tokens go to their tokens, last first: none lies behind its
  // token, and the sums may be dx itself. The others are 0.
  void StoreDx(int64_t count) const {
    int64_t row = count - 1;
    for (int64_t t = sizes_.num_tokens - 1; t >= 0; --t) {
      if (row >= 0 && active_[row] == t) {
        Store(static_cast<const float*>(RowOf(args_.dx_sum, row)),
              RowOf(args_.dx, t));
        --row;
      } else {
        std::memset(RowOf(args_.dx, t), 0,
                    static_cast<size_t>(sizes_.width * SizeOf(sizes_.dtype)));
      }
    }
  }

  float* const dweight_;
};

}  // namespace

void BackwardCpu(const BackwardArgs& args, const Exec& exec) {
  BackwardPass(args, exec).Run();
}

}  // namespace espalier::linear_cross_entropy
