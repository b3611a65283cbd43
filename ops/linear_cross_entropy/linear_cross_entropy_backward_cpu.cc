#include <algorithm>
#include <cstring>

#include "espalier/ops/linear_cross_entropy/internal/chunk.h"
#include "espalier/ops/linear_cross_entropy/internal/kernels.h"
#include "espalier/ops/linear_cross_entropy/internal/rows.h"
#include "espalier/ops/online_softmax/online_softmax.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::linear_cross_entropy {

namespace {

constexpr int64_t kRowGrain = 8;

// Walks the vocabulary, so that a block of dweight is finished at once.
class BackwardPass {
 public:
  BackwardPass(const BackwardArgs& args, const Exec& exec)
      : args_(args),
        plan_(args.plan),
        exec_(exec),
        sizes_{args.x.dim(0), args.x.dim(1), args.weight.dim(0), args.x.dtype},
        active_(PartOf<int32_t>(args.workspace, plan_.active)),
        scores_(PartOf<float>(args.workspace, plan_.scores)),
        dweight_(PartOf<float>(args.workspace, plan_.dweight)),
        gemm_(PartOf<char>(args.workspace, plan_.gemm)) {}

  void Run() {
    const int64_t count = ListActive(args_.labels, args_.ignore_index, active_);
    if (count == 0) {
      std::fill_n(dweight_, plan_.vocab_block * sizes_.width, 0.0f);
    }
    for (int64_t v = 0; v < sizes_.vocab; v += plan_.vocab_block) {
      vocab_ = v;
      columns_ = std::min(plan_.vocab_block, sizes_.vocab - v);
      for (int64_t row = 0; row < count; row += plan_.token_chunk) {
        RunChunk(row, std::min(plan_.token_chunk, count - row));
      }
      StoreDweight();
    }
    if (args_.dx) StoreDx(count);
  }

 private:
  void RunChunk(int64_t first, int64_t count) {
    const void* weight = RowOf(args_.weight, vocab_);
    const void* x = GatherRows(args_.x, active_ + first, count,
                               PartOf<char>(args_.workspace, plan_.rows));
    gemm::GemmArgs scores = ScoreProduct(sizes_, plan_, count, columns_);
    scores.a.data = x;
    scores.b.data = weight;
    scores.c = scores_;
    gemm::Gemm(scores, exec_, gemm_);
    exec_.pool.ParallelFor(count, kRowGrain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        ScoreGradient(r, active_[first + r]);
    });
    if (args_.dx) {
      gemm::GemmArgs dx = DxProduct(sizes_, plan_, count, columns_);
      dx.a.data = scores_;
      dx.b.data = weight;
      dx.c = RowOf(args_.dx_sum, first);
      dx.beta = vocab_ == 0 ? 0 : 1;
      gemm::Gemm(dx, exec_, gemm_);
    }
    gemm::GemmArgs dweight = DweightProduct(sizes_, plan_, count, columns_);
    dweight.a.data = scores_;
    dweight.b.data = x;
    dweight.c = dweight_;
    dweight.beta = first == 0 ? 0 : 1;
    gemm::Gemm(dweight, exec_, gemm_);
  }

  // Row r of scores becomes the gradient of the loss by x weight^T.
  void ScoreGradient(int64_t r, int64_t t) const {
    const double lse = args_.lse.data<const float>()[t];
    const double factor = *args_.dloss.data<const float>() * args_.logit_scale *
                          WeightAt(args_.token_weights, t, false);
    float* scores = scores_ + r * plan_.score_stride;
    ProbabilityRow(
        {.scores = scores,
         .count = columns_,
         .scale = static_cast<float>(args_.logit_scale),
         .lse = static_cast<float>(lse),
         .factor = static_cast<float>(factor * (1 + 2 * args_.z_loss * lse))},
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

  const BackwardArgs& args_;
  const Plan& plan_;
  const Exec& exec_;
  const Sizes sizes_;
  int32_t* const active_;
  float* const scores_;
  float* const dweight_;
  void* const gemm_;
  // The block being worked on.
  int64_t vocab_ = 0;
  int64_t columns_ = 0;
};

}  // namespace

void BackwardCpu(const BackwardArgs& args, const Exec& exec) {
  BackwardPass(args, exec).Run();
}

}  // namespace espalier::linear_cross_entropy
