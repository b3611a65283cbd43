#include <algorithm>
#include <cmath>

#include "espalier/ops/linear_cross_entropy/internal/chunk.h"
#include "espalier/ops/linear_cross_entropy/internal/kernels.h"
#include "espalier/ops/linear_cross_entropy/internal/rows.h"
#include "espalier/ops/online_softmax/online_softmax.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::linear_cross_entropy {

namespace {

constexpr int64_t kRowGrain = 8;

class ForwardPass : Pass<ForwardArgs> {
 public:
  ForwardPass(const ForwardArgs& args, const Exec& exec)
      : Pass(args, exec),
        max_(PartOf<float>(args.workspace, plan_.max)),
        sum_(PartOf<float>(args.workspace, plan_.sum)),
        label_logits_(PartOf<float>(args.workspace, plan_.label_logits)) {}

  void Run() {
    float* token_losses = args_.token_losses.data<float>();
    float* lse = args_.lse.data<float>();
    std::fill_n(token_losses, sizes_.num_tokens, 0.0f);
    std::fill_n(lse, sizes_.num_tokens, 0.0f);
    const int64_t count = ListTokens();
    for (int64_t row = 0; row < count; row += plan_.token_chunk) {
      SetChunk(row, std::min(plan_.token_chunk, count - row));
      RunChunk();
    }
    if (args_.dx) SpreadDx(count);
    SumLosses(count);
  }

 private:
  void RunChunk() {
    std::fill_n(max_, count_, -INFINITY);
    std::fill_n(sum_, count_, 0.0f);
    for (int64_t v = 0; v < sizes_.vocab; v += plan_.vocab_block) {
      SetBlock(v);
      ComputeScores(0);
      ForEachRow([this](int64_t r) { AddScores(r); });
      if (args_.dx) AddToDx(args_.dx);
    }
    ForEachRow([this](int64_t r) { FinishRow(r); });
  }

  // Scores become powers of e, and the sums grow by a block.
  void AddScores(int64_t r) const {
    const int64_t label = LabelAt(args_.labels, TokenOf(r)) - vocab_;
    if (label >= 0 && label < columns_) {
      label_logits_[r] =
          static_cast<float>(args_.logit_scale) * ScoresOf(r)[label];
    }
    const int32_t begin = 0;
    const int32_t end = static_cast<int32_t>(columns_);
    online_softmax::BlockArgs block;
    block.scores = ScoresOf(r);
    block.rows = 1;
    block.begin = &begin;
    block.end = &end;
    block.scale = static_cast<float>(args_.logit_scale);
    block.max = max_ + r;
    block.sum = sum_ + r;
    if (args_.dx && vocab_ > 0) {
      block.out = static_cast<float*>(RowOf(args_.dx, first_ + r));
      block.out_width = sizes_.width;
    }
    online_softmax::AddBlock(block, exec_.isa);
    if (args_.powers) Keep(r);
  }

  void Keep(int64_t r) const {
    BlockMaxOf(r) = max_[r];
    if (r >= kept_) return;
    const float one = 1;
    online_softmax::ScaleRows({.from = ScoresOf(r),
                               .factors = &one,
                               .rows = 1,
                               .width = columns_,
                               .to = PowersOf(r),
                               .to_dtype = sizes_.dtype},
                              exec_.isa);
  }

  void FinishRow(int64_t r) const {
    const int64_t t = TokenOf(r);
    const int64_t label = LabelAt(args_.labels, t);
    const float lse = online_softmax::LogSumExp(max_[r], sum_[r]);
    args_.lse.data<float>()[t] = lse;
    args_.token_losses.data<float>()[t] = lse - label_logits_[r];
    if (!args_.dx) return;
    const double weight =
        WeightAt(args_.token_weights, t, false) * args_.logit_scale;
    float* dx = static_cast<float*>(RowOf(args_.dx, first_ + r));
    CombineRow({.x = dx,
                .a = static_cast<float>(weight * (1 + 2 * args_.z_loss * lse) /
                                        sum_[r]),
                .y = RowOf(args_.weight, label),
                .y_dtype = args_.weight.dtype,
                .b = static_cast<float>(weight),
                .out = dx,
                .count = sizes_.width},
               exec_.isa);
  }

  // Moves the rows of active tokens to their tokens, last first: none lies
  // behind its token. The others are 0.
  void SpreadDx(int64_t count) const {
    if (count == sizes_.num_tokens) return;
    const size_t bytes = static_cast<size_t>(sizes_.width) * sizeof(float);
    int64_t row = count - 1;
    for (int64_t t = sizes_.num_tokens - 1; t >= 0; --t) {
      void* to = RowOf(args_.dx, t);
      if (row >= 0 && active_[row] == t) {
        if (row != t) std::memcpy(to, RowOf(args_.dx, row), bytes);
        --row;
      } else {
        std::memset(to, 0, bytes);
      }
    }
  }

  void SumLosses(int64_t count) const {
    double loss = 0;
    double weight_sum = 0;
    for (int64_t row = 0; row < count; ++row) {
      const int64_t t = active_[row];
      const double weight = WeightAt(args_.token_weights, t, false);
      const double lse = args_.lse.data<const float>()[t];
      weight_sum += weight;
      loss += weight * (args_.token_losses.data<const float>()[t] +
                        args_.z_loss * lse * lse);
    }
    *args_.loss.data<float>() = static_cast<float>(loss);
    *args_.weight_sum.data<float>() = static_cast<float>(weight_sum);
  }

  float* const max_;
  float* const sum_;
  float* const label_logits_;
};

gemm::GemmArgs LogitsProduct(const LogitsArgs& args) {
  const View& x = args.x;
  gemm::GemmArgs product;
  product.m = x.dim(0);
  product.n = args.weight.dim(0);
  product.k = x.dim(1);
  product.a = {x.pointer, x.dtype, product.k, 1};
  product.b = {args.weight.pointer, args.weight.dtype, product.k, 1};
  product.compute = gemm::ComputeFor(x.dtype, x.dtype);
  product.c = args.logits.pointer;
  product.c_stride = product.n;
  product.alpha = static_cast<float>(args.logit_scale);
  return product;
}

}  // namespace

void ForwardCpu(const ForwardArgs& args, const Exec& exec) {
  ForwardPass(args, exec).Run();
}

void ScaleCpu(const ScaleArgs& args, const Exec& exec) {
  const int64_t width = args.in.dim(1);
  exec.pool.ParallelFor(
      args.in.dim(0), kRowGrain, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          online_softmax::ScaleRows(
              {.from = static_cast<const float*>(RowOf(args.in, t)),
               .factors = args.scale.data<const float>(),
               .rows = 1,
               .width = width,
               .to = RowOf(args.out, t),
               .to_dtype = args.out.dtype},
              exec.isa);
        }
      });
}

int64_t LogitsWorkspaceBytes(const LogitsArgs& args, Isa isa) {
  return gemm::WorkspaceBytes(LogitsProduct(args), isa);
}

void LogitsCpu(const LogitsArgs& args, const Exec& exec) {
  gemm::Gemm(LogitsProduct(args), exec,
             {args.workspace.pointer, args.workspace.dim(0)});
}

}  // namespace espalier::linear_cross_entropy
