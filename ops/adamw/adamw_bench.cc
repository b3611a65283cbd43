#include "espalier/ops/adamw/adamw.h"
#include "espalier/ops/adamw8bit/adamw8bit.h"
#include "espalier/tests/bench/ceilings.h"

namespace espalier {
namespace {

constexpr int64_t kCount = int64_t{1} << 24;

AdamWUpdate Update() {
  AdamWUpdate update;
  update.learning_rate = 1e-4;
  return update;
}

// 4 reads and 3 writes of f32: 28 bytes a parameter.
void BM_AdamW(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  const auto context = bench::MakeContext(threads);
  Device& cpu = context->cpu();
  const Tensor p = bench::RandomTensor(cpu, {kCount}, kF32, 1);
  const Tensor g = bench::RandomTensor(cpu, {kCount}, kF32, 2);
  const Tensor m = Tensor::Zeros(cpu, {kCount}, kF32);
  const Tensor v = Tensor::Zeros(cpu, {kCount}, kF32);
  for ([[maybe_unused]] auto _ : state) AdamW(p, g, m, v, Update());
  bench::ReportBytes(state, 28.0 * kCount, threads);
}
BENCHMARK(BM_AdamW)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

// 2 reads and 1 write of f32, 2 codes each way: 16 bytes a parameter.
void BM_AdamW8Bit(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  const auto context = bench::MakeContext(threads);
  Device& cpu = context->cpu();
  const Tensor p = bench::RandomTensor(cpu, {kCount}, kF32, 1);
  const Tensor g = bench::RandomTensor(cpu, {kCount}, kF32, 2);
  const AdamW8BitMoments moments = AdamW8BitMoments::Zeros(cpu, kCount);
  for ([[maybe_unused]] auto _ : state) AdamW8Bit(p, g, moments, Update());
  bench::ReportBytes(state, 16.0 * kCount, threads);
}
BENCHMARK(BM_AdamW8Bit)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace espalier
