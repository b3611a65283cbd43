#include <algorithm>
#include <cstring>

#include "espalier/ops/embedding/internal/kernels.h"
#include "espalier/ops/split.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::embedding {

void Forward(const ForwardArgs& args, const Exec& exec) {
  const int64_t row_bytes = args.weight.dim(1) * SizeOf(args.weight.dtype);
  const char* weight = args.weight.data<const char>();
  const int32_t* ids = args.ids.data<const int32_t>();
  char* y = args.y.data<char>();
  exec.pool.ParallelFor(args.ids.dim(0), RowGrain(args.weight.dim(1)),
                        [&](int64_t begin, int64_t end) {
                          for (int64_t t = begin; t < end; ++t) {
                            std::memcpy(y + t * row_bytes,
                                        weight + ids[t] * row_bytes,
                                        static_cast<size_t>(row_bytes));
                          }
                        });
}

namespace {

// Tokens with the same id, linked from the last to the first.
void LinkTokens(const BackwardArgs& args) {
  const int32_t* ids = args.ids.data<const int32_t>();
  int32_t* heads = args.heads.data<int32_t>();
  int32_t* chain = args.chain.data<int32_t>();
  std::fill(heads, heads + args.heads.dim(0), -1);
  for (int64_t t = args.ids.dim(0) - 1; t >= 0; --t) {
    chain[t] = heads[ids[t]];
    heads[ids[t]] = static_cast<int32_t>(t);
  }
}

// Elements of a row that are summed at once.
constexpr int64_t kStrip = 256;

template <typename T, typename Wide>
void SumRow(const BackwardArgs& args, int32_t first, T* row) {
  const int64_t width = args.dweight.dim(1);
  const int32_t* chain = args.chain.data<const int32_t>();
  for (int64_t begin = 0; begin < width; begin += kStrip) {
    const int64_t count = std::min(kStrip, width - begin);
    Wide sum[kStrip] = {};
    for (int32_t t = first; t >= 0; t = chain[t]) {
      const T* dy = args.dy.data<const T>() + t * width + begin;
      for (int64_t h = 0; h < count; ++h) sum[h] += static_cast<Wide>(dy[h]);
    }
    for (int64_t h = 0; h < count; ++h) row[begin + h] = static_cast<T>(sum[h]);
  }
}

template <typename T, typename Wide>
void Backward(const BackwardArgs& args, const Exec& exec) {
  LinkTokens(args);
  const int64_t width = args.dweight.dim(1);
  const int32_t* heads = args.heads.data<const int32_t>();
  exec.pool.ParallelFor(
      args.dweight.dim(0), RowGrain(width), [&](int64_t begin, int64_t end) {
        for (int64_t v = begin; v < end; ++v) {
          SumRow<T, Wide>(args, heads[v], args.dweight.data<T>() + v * width);
        }
      });
}

}  // namespace

void BackwardF64(const BackwardArgs& args, const Exec& exec) {
  Backward<double, double>(args, exec);
}
void BackwardF32(const BackwardArgs& args, const Exec& exec) {
  Backward<float, float>(args, exec);
}
void BackwardBF16(const BackwardArgs& args, const Exec& exec) {
  Backward<BFloat16, float>(args, exec);
}

}  // namespace espalier::embedding
