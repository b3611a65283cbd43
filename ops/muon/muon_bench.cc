#include "espalier/ops/muon/muon.h"
#include "espalier/tests/bench/ceilings.h"

namespace espalier {
namespace {

// One step of a [1024, 2048] weight. Counted are the products of NewtonSchulz
// alone: with n the smaller side and m the larger, n n m + n n n + n n m
// multiply-adds an iteration.
void BM_Muon(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  const auto context = bench::MakeContext(threads);
  Device& cpu = context->cpu();
  constexpr int64_t kRows = 1024;
  constexpr int64_t kColumns = 2048;
  const Shape shape = {kRows, kColumns};
  const Tensor p = bench::RandomTensor(cpu, shape, kF32, 1);
  const Tensor g = bench::RandomTensor(cpu, shape, kF32, 2);
  const Tensor buffer = Tensor::Zeros(cpu, shape, kF32);
  MuonUpdate update;
  update.learning_rate = 1e-3;
  Muon(p, g, buffer, update);  // its memory stays with the allocator
  for ([[maybe_unused]] auto _ : state) Muon(p, g, buffer, update);
  const double products = 2.0 * kRows * kRows * (2 * kColumns + kRows);
  bench::ReportFlops(state, update.num_iterations * products, bench::Peak::kF32,
                     threads);
}
BENCHMARK(BM_Muon)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace espalier
