#include <memory>
#include <vector>

#include "espalier/autograd/backward.h"
#include "espalier/autograd/mode.h"
#include "espalier/ops/attention/attention.h"
#include "espalier/tests/bench/ceilings.h"

namespace espalier {
namespace {

constexpr int64_t kWidth = 128;

// One document of T tokens, causal; N query heads on G key/value heads.
struct Problem {
  Problem(benchmark::State& state, DType dtype)
      : num_tokens(state.range(0)),
        num_heads(state.range(1)),
        threads(static_cast<int>(state.range(3))),
        context(bench::MakeContext(threads)) {
    Device& device = context->cpu();
    const int64_t groups = state.range(2);
    options.cu_seqlens = std::make_shared<std::vector<int32_t>>(
        std::vector<int32_t>{0, static_cast<int32_t>(num_tokens)});
    q = Variable(
        bench::RandomTensor(device, {num_tokens, num_heads, kWidth}, dtype, 1),
        true);
    k = Variable(
        bench::RandomTensor(device, {num_tokens, groups, kWidth}, dtype, 2),
        true);
    v = Variable(
        bench::RandomTensor(device, {num_tokens, groups, kWidth}, dtype, 3),
        true);
    dout =
        bench::RandomTensor(device, {num_tokens, num_heads, kWidth}, dtype, 4);
  }
  // Of one product over the keys that causal queries see.
  double ProductFlops() const {
    const double pairs = 0.5 * static_cast<double>(num_tokens) *
                         static_cast<double>(num_tokens + 1);
    return 2 * pairs * static_cast<double>(num_heads * kWidth);
  }

  const int64_t num_tokens;
  const int64_t num_heads;
  const int threads;
  std::unique_ptr<Context> context;
  AttentionOptions options;
  Variable q, k, v;
  Tensor dout;
};

void Forward(benchmark::State& state, DType dtype, bench::Peak peak) {
  Problem p(state, dtype);
  const NoGrad no_grad;
  Attention(p.q, p.k, p.v, p.options);  // its memory stays with the allocator
  for ([[maybe_unused]] auto _ : state) Attention(p.q, p.k, p.v, p.options);
  bench::ReportFlops(state, 2 * p.ProductFlops(), peak, p.threads);
}

// Two products forward, four backward; that backward computes the scores once
// more is not counted as useful.
void Train(benchmark::State& state, DType dtype, bench::Peak peak) {
  Problem p(state, dtype);
  Allocator& allocator = p.context->cpu().allocator();
  const int64_t before = allocator.stats().allocated;
  allocator.ResetPeak();
  const auto step = [&p] {
    for (Variable* input : {&p.q, &p.k, &p.v}) input->ClearGrad();
    autograd::Backward(Attention(p.q, p.k, p.v, p.options), p.dout);
  };
  step();  // its memory stays with the allocator
  for ([[maybe_unused]] auto _ : state) step();
  state.counters["peak_MB"] =
      static_cast<double>(allocator.stats().peak_allocated - before) * 1e-6;
  bench::ReportFlops(state, 6 * p.ProductFlops(), peak, p.threads);
}

void BM_ForwardBf16(benchmark::State& state) {
  Forward(state, kBF16, bench::Peak::kBf16);
}
void BM_TrainBf16(benchmark::State& state) {
  Train(state, kBF16, bench::Peak::kBf16);
}
void BM_TrainF32(benchmark::State& state) {
  Train(state, kF32, bench::Peak::kF32);
}

void Heads(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"T", "N", "G", "threads"})->UseRealTime();
  for (const int threads : {1, 2}) {
    bench->Args({2048, 16, 16, threads})->Args({2048, 16, 4, threads});
  }
}
BENCHMARK(BM_ForwardBf16)->Apply(Heads);
BENCHMARK(BM_TrainBf16)
    ->Apply(Heads)
    ->Args({4096, 16, 4, 2})
    ->Args({8192, 16, 4, 2});
BENCHMARK(BM_TrainF32)
    ->ArgNames({"T", "N", "G", "threads"})
    ->UseRealTime()
    ->Args({2048, 16, 4, 1});

}  // namespace
}  // namespace espalier
