#include <vector>

#include "espalier/ops/l2_norm/l2_norm.h"
#include "espalier/tests/bench/op_bench.h"

namespace espalier {
namespace {

using Inputs = std::vector<Variable>;

const Shape kHeads = {8192, 32, 128};

void BM_L2Norm(benchmark::State& state) {
  bench::TimeForward(state, {kHeads},
                     [](const Inputs& in) { return L2Norm(in[0], 1e-6); });
}
BENCHMARK(BM_L2Norm)->Apply(bench::ByDTypeAndThreads);

void BM_L2NormBackward(benchmark::State& state) {
  bench::TimeBackward(state, {kHeads}, 1,
                      [](const Inputs& in) { return L2Norm(in[0], 1e-6); });
}
BENCHMARK(BM_L2NormBackward)->Apply(bench::ByDTypeAndThreads);

}  // namespace
}  // namespace espalier
