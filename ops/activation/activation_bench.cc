#include <vector>

#include "espalier/ops/activation/activation.h"
#include "espalier/tests/bench/op_bench.h"

namespace espalier {
namespace {

using Inputs = std::vector<Variable>;

void BM_Silu(benchmark::State& state) {
  bench::TimeForward(state, {bench::kWide},
                     [](const Inputs& in) { return Silu(in[0]); });
}
BENCHMARK(BM_Silu)->Apply(bench::ByDTypeAndThreads);

void BM_Gelu(benchmark::State& state) {
  bench::TimeForward(state, {bench::kWide},
                     [](const Inputs& in) { return Gelu(in[0]); });
}
BENCHMARK(BM_Gelu)->Apply(bench::ByDTypeAndThreads);

void BM_SiluBackward(benchmark::State& state) {
  bench::TimeBackward(state, {bench::kWide}, 1,
                      [](const Inputs& in) { return Silu(in[0]); });
}
BENCHMARK(BM_SiluBackward)->Apply(bench::ByDTypeAndThreads);

}  // namespace
}  // namespace espalier
