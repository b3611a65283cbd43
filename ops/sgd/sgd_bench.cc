#include "espalier/ops/sgd/sgd.h"
#include "espalier/tests/bench/ceilings.h"

namespace espalier {
namespace {

constexpr int64_t kCount = int64_t{1} << 24;

// 2 reads and 1 write of f32, the momentum as much again: 20 bytes a parameter
// with it, 12 without.
void BM_Sgd(benchmark::State& state) {
  const bool has_momentum = state.range(0) != 0;
  const int threads = static_cast<int>(state.range(1));
  const auto context = bench::MakeContext(threads);
  Device& cpu = context->cpu();
  const Tensor p = bench::RandomTensor(cpu, {kCount}, kF32, 1);
  const Tensor g = bench::RandomTensor(cpu, {kCount}, kF32, 2);
  const Tensor buffer =
      has_momentum ? Tensor::Zeros(cpu, {kCount}, kF32) : Tensor();
  SgdUpdate update;
  update.learning_rate = 1e-4;
  update.momentum = has_momentum ? 0.9 : 0;
  for ([[maybe_unused]] auto _ : state) Sgd(p, g, buffer, update);
  bench::ReportBytes(state, (has_momentum ? 20.0 : 12.0) * kCount, threads);
}
BENCHMARK(BM_Sgd)
    ->ArgNames({"momentum", "threads"})
    ->ArgsProduct({{0, 1}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace espalier
