#ifndef ESPALIER_OPS_LINEAR_CROSS_ENTROPY_INTERNAL_CHUNK_H_
#define ESPALIER_OPS_LINEAR_CROSS_ENTROPY_INTERNAL_CHUNK_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "espalier/ops/linear_cross_entropy/internal/kernels.h"
#include "espalier/runtime/thread_pool.h"

// What the forward and the backward pass share: both work on the rows of
// tokens that count, which lie one behind the other.
//
// For a weight that needs a gradient the forward pass keeps the powers of e it
// computes, relative to a row's largest score so far (kept too, `block_max`
// [V blocks, T]), rounded to the dtype of the weight. They lie where the
// gradient of the weight will be, a block of the vocabulary where that block
// will be, so there is room for H tokens; of the others the backward pass
// computes the same powers again, with the same bits.
namespace espalier::linear_cross_entropy {

template <typename T>
T* PartOf(const View& workspace, int64_t offset) {
  return reinterpret_cast<T*>(workspace.data<char>() + offset);
}

inline void* RowOf(const View& matrix, int64_t row) {
  return matrix.data<char>() + row * matrix.dim(1) * SizeOf(matrix.dtype);
}

// Writes the token of every row; returns the number of rows.
inline int64_t ListActive(const View& labels, int64_t ignore_index,
                          int32_t* active) {
  int64_t count = 0;
  for (int64_t t = 0; t < labels.dim(0); ++t) {
    if (LabelAt(labels, t) == ignore_index) continue;
    active[count++] = static_cast<int32_t>(t);
  }
  return count;
}

// x of the tokens active[0, count): where it lies, or gathered into `rows`.
inline const void* GatherRows(const View& x, const int32_t* active,
                              int64_t count, void* rows) {
  if (active[count - 1] - active[0] + 1 == count) return RowOf(x, active[0]);
  const int64_t row_bytes = x.dim(1) * SizeOf(x.dtype);
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(static_cast<char*>(rows) + i * row_bytes, RowOf(x, active[i]),
                static_cast<size_t>(row_bytes));
  }
  return rows;
}

// Args is ForwardArgs or BackwardArgs.
template <typename Args>
class Pass {
 protected:
  static constexpr int64_t kRowGrain = 8;

  Pass(const Args& args, const Exec& exec)
      : args_(args),
        plan_(args.plan),
        exec_(exec),
        sizes_{args.x.dim(0), args.x.dim(1), args.weight.dim(0), args.x.dtype},
        active_(PartOf<int32_t>(args.workspace, plan_.active)),
        scores_(PartOf<float>(args.workspace, plan_.scores)),
        gemm_{PartOf<char>(args.workspace, plan_.gemm), plan_.gemm_bytes} {}

  int64_t ListTokens() {
    return ListActive(args_.labels, args_.ignore_index, active_);
  }

  // The block of the vocabulary that is worked on.
  void SetBlock(int64_t vocab) {
    vocab_ = vocab;
    columns_ = std::min(plan_.vocab_block, sizes_.vocab - vocab);
  }
  // The rows that are worked on.
  void SetChunk(int64_t first, int64_t count) {
    first_ = first;
    count_ = count;
    x_ = GatherRows(args_.x, active_ + first, count,
                    PartOf<char>(args_.workspace, plan_.rows));
    kept_ =
        args_.powers ? std::clamp<int64_t>(sizes_.width - first, 0, count) : 0;
  }

  // Scores of rows [begin, count_) of the chunk.
  void ComputeScores(int64_t begin) {
    if (begin == count_) return;
    gemm::GemmArgs scores =
        ScoreProduct(sizes_, plan_, count_ - begin, columns_);
    scores.a.data = static_cast<const char*>(x_) +
                    begin * sizes_.width * SizeOf(sizes_.dtype);
    scores.b.data = RowOf(args_.weight, vocab_);
    scores.c = scores_ + begin * plan_.score_stride;
    gemm::Gemm(scores, exec_, gemm_);
  }

  // sum [T, H] f32 of rows: += scores weight.
  void AddToDx(const View& sum) {
    gemm::GemmArgs dx = DxProduct(sizes_, plan_, count_, columns_);
    dx.a.data = scores_;
    dx.b.data = RowOf(args_.weight, vocab_);
    dx.c = RowOf(sum, first_);
    dx.beta = vocab_ == 0 ? 0 : 1;
    gemm::Gemm(dx, exec_, gemm_);
  }

  // fn(r) for the rows of the chunk, on the pool.
  template <typename Fn>
  void ForEachRow(const Fn& fn) {
    exec_.pool.ParallelFor(count_, kRowGrain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) fn(r);
    });
  }

  float* ScoresOf(int64_t r) const { return scores_ + r * plan_.score_stride; }
  int64_t TokenOf(int64_t r) const { return active_[first_ + r]; }
  // Row r < kept_ of the powers of the block.
  void* PowersOf(int64_t r) const {
    const int64_t at = vocab_ * sizes_.width + (first_ + r) * columns_;
    return args_.powers.template data<char>() + at * SizeOf(sizes_.dtype);
  }
  float& BlockMaxOf(int64_t r) const {
    return args_.block_max.template data<
        float>()[vocab_ / plan_.vocab_block * sizes_.num_tokens + first_ + r];
  }

  const Args& args_;
  const Plan& plan_;
  const Exec& exec_;
  const Sizes sizes_;
  int32_t* const active_;
  float* const scores_;
  const gemm::Workspace gemm_;
  int64_t vocab_ = 0, columns_ = 0;
  int64_t first_ = 0, count_ = 0;
  int64_t kept_ = 0;  // rows of the chunk whose powers are kept, the first ones
  const void* x_ = nullptr;
};

}  // namespace espalier::linear_cross_entropy

#endif  // ESPALIER_OPS_LINEAR_CROSS_ENTROPY_INTERNAL_CHUNK_H_
