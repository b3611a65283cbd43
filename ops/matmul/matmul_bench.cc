#include <memory>

#include "benchmark/benchmark.h"

#include "espalier/autograd/backward.h"
#include "espalier/autograd/mode.h"
#include "espalier/ops/matmul/matmul.h"
#include "espalier/tests/bench/ceilings.h"

namespace espalier {
namespace {

struct Layer {
  Layer(const benchmark::State& state, DType dtype, bool frozen)
      : threads(static_cast<int>(state.range(3))),
        context(bench::MakeContext(threads)),
        x(bench::RandomTensor(context->cpu(), {state.range(0), state.range(1)},
                              dtype, 1),
          /*needs_grad=*/true),
        weight(bench::RandomTensor(context->cpu(),
                                   {state.range(2), state.range(1)}, dtype, 2),
               !frozen) {}
  double flops() const {
    return 2.0 * static_cast<double>(x.value().num_elements()) *
           static_cast<double>(weight.value().dim(0));
  }

  int threads;
  std::unique_ptr<Context> context;
  Variable x, weight;
};

bench::Peak PeakOf(DType dtype) {
  return dtype == kF32 ? bench::Peak::kF32 : bench::Peak::kBf16;
}

void Forward(benchmark::State& state, DType dtype) {
  Layer layer(state, dtype, /*frozen=*/true);
  const NoGrad no_grad;
  for ([[maybe_unused]] auto _ : state) Linear(layer.x, layer.weight);
  bench::ReportFlops(state, layer.flops(), PeakOf(dtype), layer.threads);
}

// Forward and the input's gradient (frozen), or both gradients.
void Step(benchmark::State& state, DType dtype, bool frozen) {
  Layer layer(state, dtype, frozen);
  const Tensor dy = bench::RandomTensor(
      layer.context->cpu(), {state.range(0), state.range(2)}, dtype, 3);
  for ([[maybe_unused]] auto _ : state) {
    autograd::Backward(Linear(layer.x, layer.weight), dy);
    layer.x.ClearGrad();
    layer.weight.ClearGrad();
  }
  bench::ReportFlops(state, layer.flops() * (frozen ? 2 : 3), PeakOf(dtype),
                     layer.threads);
}

void BM_LinearBf16(benchmark::State& state) { Forward(state, kBF16); }
void BM_LinearF32(benchmark::State& state) { Forward(state, kF32); }
void BM_LinearFrozenStepBf16(benchmark::State& state) {
  Step(state, kBF16, true);
}
void BM_LinearFullStepBf16(benchmark::State& state) {
  Step(state, kBF16, false);
}
void BM_LinearFullStepF32(benchmark::State& state) { Step(state, kF32, false); }

void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"T", "in", "out", "threads"})->UseRealTime();
  for (int64_t threads : {1, 2}) {
    benchmark->Args({512, 576, 1536, threads});
    benchmark->Args({2048, 2048, 2048, threads});
    benchmark->Args({256, 7168, 3072, threads});
  }
}

BENCHMARK(BM_LinearBf16)->Apply(Shapes);
BENCHMARK(BM_LinearF32)->Apply(Shapes);
BENCHMARK(BM_LinearFrozenStepBf16)->Apply(Shapes);
BENCHMARK(BM_LinearFullStepBf16)->Apply(Shapes);
BENCHMARK(BM_LinearFullStepF32)->Apply(Shapes);

}  // namespace
}  // namespace espalier
