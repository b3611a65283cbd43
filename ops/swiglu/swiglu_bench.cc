#include <vector>

#include "espalier/ops/swiglu/swiglu.h"
#include "espalier/tests/bench/op_bench.h"

namespace espalier {
namespace {

using Inputs = std::vector<Variable>;

void BM_SwiGlu(benchmark::State& state) {
  bench::TimeForward(state, {bench::kWide, bench::kWide},
                     [](const Inputs& in) { return SwiGlu(in[0], in[1]); });
}
BENCHMARK(BM_SwiGlu)->Apply(bench::ByDTypeAndThreads);

void BM_GeGlu(benchmark::State& state) {
  bench::TimeForward(state, {bench::kWide, bench::kWide},
                     [](const Inputs& in) { return GeGlu(in[0], in[1]); });
}
BENCHMARK(BM_GeGlu)->Apply(bench::ByDTypeAndThreads);

void BM_SwiGluBackward(benchmark::State& state) {
  bench::TimeBackward(state, {bench::kWide, bench::kWide}, 2,
                      [](const Inputs& in) { return SwiGlu(in[0], in[1]); });
}
BENCHMARK(BM_SwiGluBackward)->Apply(bench::ByDTypeAndThreads);

void BM_GeGluBackward(benchmark::State& state) {
  bench::TimeBackward(state, {bench::kWide, bench::kWide}, 2,
                      [](const Inputs& in) { return GeGlu(in[0], in[1]); });
}
BENCHMARK(BM_GeGluBackward)->Apply(bench::ByDTypeAndThreads);

}  // namespace
}  // namespace espalier
