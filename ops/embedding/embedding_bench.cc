#include <cstdint>
#include <vector>

#include "espalier/ops/embedding/embedding.h"
#include "espalier/tests/bench/op_bench.h"

namespace espalier {
namespace {

// 8192 tokens, spread over a [49152, 1024] table; the rows are read and written
// once.
void BM_Embedding(benchmark::State& state) {
  constexpr int64_t kTokens = 8192;
  constexpr int64_t kVocabulary = 49152;
  constexpr int64_t kWidth = 1024;
  const int threads = static_cast<int>(state.range(1));
  const auto context = bench::MakeContext(threads);
  const NoGrad no_grad;
  const Variable weight(bench::RandomTensor(
      context->cpu(), {kVocabulary, kWidth}, bench::DTypeAt(state), 1));
  std::vector<int32_t> ids(kTokens);
  for (int64_t t = 0; t < kTokens; ++t) {
    ids[static_cast<size_t>(t)] = static_cast<int32_t>(t * 40503 % kVocabulary);
  }
  const Tensor tokens =
      Tensor::FromHost<int32_t>(context->cpu(), {kTokens}, ids);
  Embedding(weight, tokens);  // its memory stays with the allocator
  for (auto _ : state) Embedding(weight, tokens);
  bench::ReportBytes(state,
                     static_cast<double>(2 * kTokens * kWidth * state.range(0)),
                     threads);
}
BENCHMARK(BM_Embedding)->Apply(bench::ByDTypeAndThreads);

}  // namespace
}  // namespace espalier
