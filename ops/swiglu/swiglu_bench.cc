#include "espalier/autograd/backward.h"
#include "espalier/autograd/mode.h"
#include "espalier/ops/swiglu/swiglu.h"
#include "espalier/tests/bench/ceilings.h"

namespace espalier {
namespace {

// Out of cache: [4096, 4096].
const Shape kShape = {4096, 4096};

DType DTypeAt(const benchmark::State& state) {
  return state.range(0) == 2 ? kBF16 : kF32;
}

void BM_SwiGlu(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(1));
  const auto context = bench::MakeContext(threads);
  const auto make = [&](const Shape& shape, uint64_t seed) {
    return Variable(
        bench::RandomTensor(context->cpu(), shape, DTypeAt(state), seed));
  };
  const NoGrad no_grad;
  const Variable x = make(kShape, 1);
  const Variable up = make(kShape, 2);
  SwiGlu(x, up);  // its memory stays with the allocator
  for (auto _ : state) SwiGlu(x, up);
  bench::ReportBytes(state, static_cast<double>(3 * x.value().num_bytes()),
                     threads);
}
BENCHMARK(BM_SwiGlu)
    ->ArgNames({"bytes", "threads"})
    ->ArgsProduct({{4, 2}, {1, 2}})
    ->UseRealTime();

void BM_GeGlu(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(1));
  const auto context = bench::MakeContext(threads);
  const auto make = [&](const Shape& shape, uint64_t seed) {
    return Variable(
        bench::RandomTensor(context->cpu(), shape, DTypeAt(state), seed));
  };
  const NoGrad no_grad;
  const Variable x = make(kShape, 1);
  const Variable up = make(kShape, 2);
  GeGlu(x, up);  // its memory stays with the allocator
  for (auto _ : state) GeGlu(x, up);
  bench::ReportBytes(state, static_cast<double>(3 * x.value().num_bytes()),
                     threads);
}
BENCHMARK(BM_GeGlu)
    ->ArgNames({"bytes", "threads"})
    ->ArgsProduct({{4, 2}, {1, 2}})
    ->UseRealTime();

void BM_SwiGluBackward(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(1));
  const auto context = bench::MakeContext(threads);
  const auto make = [&](const Shape& shape, uint64_t seed) {
    return bench::RandomTensor(context->cpu(), shape, DTypeAt(state), seed);
  };
  Variable gate(make(kShape, 1), true);
  Variable up(make(kShape, 2), true);
  const Tensor dy = make(kShape, 3);
  for (auto _ : state) {
    state.PauseTiming();
    const Variable y = SwiGlu(gate, up);
    state.ResumeTiming();
    autograd::Backward(y, dy);
    state.PauseTiming();
    gate.ClearGrad();
    up.ClearGrad();
    state.ResumeTiming();
  }
  bench::ReportBytes(state, static_cast<double>(5 * dy.num_bytes()), threads);
}
BENCHMARK(BM_SwiGluBackward)
    ->ArgNames({"bytes", "threads"})
    ->ArgsProduct({{4, 2}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace espalier
