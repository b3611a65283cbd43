#include <vector>

#include "espalier/ops/layer_norm/layer_norm.h"
#include "espalier/tests/bench/op_bench.h"

namespace espalier {
namespace {

using Inputs = std::vector<Variable>;

void BM_LayerNorm(benchmark::State& state) {
  bench::TimeForward(
      state, {bench::kWide, {4096}, {4096}},
      [](const Inputs& in) { return LayerNorm(in[0], in[1], in[2], 1e-5); });
}
BENCHMARK(BM_LayerNorm)->Apply(bench::ByDTypeAndThreads);

void BM_LayerNormBackward(benchmark::State& state) {
  bench::TimeBackward(
      state, {bench::kWide, {4096}, {4096}}, 1,
      [](const Inputs& in) { return LayerNorm(in[0], in[1], in[2], 1e-5); });
}
BENCHMARK(BM_LayerNormBackward)->Apply(bench::ByDTypeAndThreads);

}  // namespace
}  // namespace espalier
