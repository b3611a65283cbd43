#include "benchmark/benchmark.h"

#include "espalier/runtime/rng.h"
#include "espalier/tests/bench/ceilings.h"

namespace espalier {
namespace {

void BM_FillUniform(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  auto context = bench::MakeContext(threads);
  const Tensor x = Tensor::Zeros(context->cpu(), {16, 1 << 20}, kF32);
  for ([[maybe_unused]] auto _ : state) FillUniform(x, Rng{1, 2}, -1, 1);
  bench::ReportBytes(state, static_cast<double>(x.num_bytes()), threads);
}
BENCHMARK(BM_FillUniform)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

void BM_FillNormal(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  auto context = bench::MakeContext(threads);
  const Tensor x = Tensor::Zeros(context->cpu(), {4, 1 << 20}, kF32);
  for ([[maybe_unused]] auto _ : state) FillNormal(x, Rng{1, 2}, 0, 1);
  bench::ReportBytes(state, static_cast<double>(x.num_bytes()), threads);
}
BENCHMARK(BM_FillNormal)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

void BM_RandomPermutation(benchmark::State& state) {
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(RandomPermutation(Rng{1, 2}, state.range(0)));
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_RandomPermutation)->ArgName("n")->Arg(1 << 20);

}  // namespace
}  // namespace espalier
