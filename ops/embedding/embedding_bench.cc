#include <cstdint>
#include <vector>

#include "espalier/ops/embedding/embedding.h"
#include "espalier/ops/embedding/rows.h"
#include "espalier/tests/bench/op_bench.h"

namespace espalier {
namespace {

// 8192 tokens, spread over a [49152, 1024] table.
constexpr int64_t kTokens = 8192;
constexpr int64_t kVocabulary = 49152;
constexpr int64_t kWidth = 1024;

Tensor Ids(Context& context) {
  std::vector<int32_t> ids(kTokens);
  for (int64_t t = 0; t < kTokens; ++t) {
    ids[static_cast<size_t>(t)] = static_cast<int32_t>(t * 40503 % kVocabulary);
  }
  return Tensor::FromHost<int32_t>(context.cpu(), {kTokens}, ids);
}

// Rows read and written once.
double TokenBytes(const benchmark::State& state) {
  return static_cast<double>(kTokens * kWidth * state.range(0));
}

void BM_Embedding(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(1));
  const auto context = bench::MakeContext(threads);
  const NoGrad no_grad;
  const Variable weight(bench::RandomTensor(
      context->cpu(), {kVocabulary, kWidth}, bench::DTypeAt(state), 1));
  const Tensor ids = Ids(*context);
  Embedding(weight, ids);  // its memory stays with the allocator
  for ([[maybe_unused]] auto _ : state) Embedding(weight, ids);
  bench::ReportBytes(state, 2 * TokenBytes(state), threads);
}
BENCHMARK(BM_Embedding)->Apply(bench::ByDTypeAndThreads);

// The gradient of the whole table: dy is read once, the table written once.
void BM_EmbeddingBackward(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(1));
  const auto context = bench::MakeContext(threads);
  const DType dtype = bench::DTypeAt(state);
  Variable weight(
      bench::RandomTensor(context->cpu(), {kVocabulary, kWidth}, dtype, 1),
      /*needs_grad=*/true);
  const Tensor ids = Ids(*context);
  const Tensor dy =
      bench::RandomTensor(context->cpu(), {kTokens, kWidth}, dtype, 2);
  autograd::Backward(Embedding(weight, ids), dy);  // its memory stays
  for ([[maybe_unused]] auto _ : state) {
    state.PauseTiming();
    weight.ClearGrad();
    const Variable y = Embedding(weight, ids);
    state.ResumeTiming();
    autograd::Backward(y, dy);
  }
  bench::ReportBytes(
      state,
      TokenBytes(state) + static_cast<double>(weight.value().num_bytes()),
      threads);
}
BENCHMARK(BM_EmbeddingBackward)->Apply(bench::ByDTypeAndThreads);

// The same step by rows alone (every id is its own row here): names the rows,
// takes them, looks them up, makes their gradient, puts them back.
void BM_EmbeddingRows(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(1));
  const auto context = bench::MakeContext(threads);
  const DType dtype = bench::DTypeAt(state);
  const Tensor table =
      bench::RandomTensor(context->cpu(), {kVocabulary, kWidth}, dtype, 1);
  const Tensor ids = Ids(*context);
  const Tensor dy =
      bench::RandomTensor(context->cpu(), {kTokens, kWidth}, dtype, 2);
  const auto step = [&] {
    const TableRows used = SelectRows(ids, kVocabulary);
    const Variable rows(Embedding(Variable(table), used.rows).value(),
                        /*needs_grad=*/true);
    autograd::Backward(Embedding(rows, used.index), dy);
    PutRows(table, used.rows, rows.value());
  };
  step();  // its memory stays with the allocator
  for ([[maybe_unused]] auto _ : state) step();
  // Four passes, each of which reads and writes kTokens rows.
  bench::ReportBytes(state, 8 * TokenBytes(state), threads);
}
BENCHMARK(BM_EmbeddingRows)->Apply(bench::ByDTypeAndThreads);

}  // namespace
}  // namespace espalier
