#include <vector>

#include "espalier/ops/rms_norm/rms_norm.h"
#include "espalier/tests/bench/op_bench.h"

namespace espalier {
namespace {

using Inputs = std::vector<Variable>;

void BM_RmsNorm(benchmark::State& state) {
  bench::TimeForward(state, {bench::kWide, {4096}}, [](const Inputs& in) {
    return RmsNorm(in[0], in[1], 1e-6);
  });
}
BENCHMARK(BM_RmsNorm)->Apply(bench::ByDTypeAndThreads);

void BM_GatedRmsNorm(benchmark::State& state) {
  bench::TimeForward(
      state, {bench::kWide, {4096}, bench::kWide}, [](const Inputs& in) {
        return GatedRmsNorm(in[0], in[1], in[2], 1e-6, NormGate::kSilu);
      });
}
BENCHMARK(BM_GatedRmsNorm)->Apply(bench::ByDTypeAndThreads);

void BM_RmsNormBackward(benchmark::State& state) {
  bench::TimeBackward(state, {bench::kWide, {4096}}, 1, [](const Inputs& in) {
    return RmsNorm(in[0], in[1], 1e-6);
  });
}
BENCHMARK(BM_RmsNormBackward)->Apply(bench::ByDTypeAndThreads);

void BM_RmsNormBackwardWeight(benchmark::State& state) {
  bench::TimeBackward(state, {bench::kWide, {4096}}, 2, [](const Inputs& in) {
    return RmsNorm(in[0], in[1], 1e-6);
  });
}
BENCHMARK(BM_RmsNormBackwardWeight)->Apply(bench::ByDTypeAndThreads);

}  // namespace
}  // namespace espalier
