#include <vector>

#include "espalier/ops/elementwise/elementwise.h"
#include "espalier/tests/bench/op_bench.h"

namespace espalier {
namespace {

using Inputs = std::vector<Variable>;

void BM_Add(benchmark::State& state) {
  bench::TimeForward(state, {bench::kWide, bench::kWide},
                     [](const Inputs& in) { return Add(in[0], in[1]); });
}
BENCHMARK(BM_Add)->Apply(bench::ByDTypeAndThreads);

void BM_Mul(benchmark::State& state) {
  bench::TimeForward(state, {bench::kWide, bench::kWide},
                     [](const Inputs& in) { return Mul(in[0], in[1]); });
}
BENCHMARK(BM_Mul)->Apply(bench::ByDTypeAndThreads);

void BM_Scale(benchmark::State& state) {
  bench::TimeForward(state, {bench::kWide},
                     [](const Inputs& in) { return Scale(in[0], 0.5); });
}
BENCHMARK(BM_Scale)->Apply(bench::ByDTypeAndThreads);

}  // namespace
}  // namespace espalier
