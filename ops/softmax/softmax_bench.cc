#include <vector>

#include "espalier/ops/softmax/softmax.h"
#include "espalier/tests/bench/op_bench.h"

namespace espalier {
namespace {

using Inputs = std::vector<Variable>;

void BM_Softmax(benchmark::State& state) {
  bench::TimeForward(state, {bench::kWide},
                     [](const Inputs& in) { return Softmax(in[0]); });
}
BENCHMARK(BM_Softmax)->Apply(bench::ByDTypeAndThreads);

void BM_SoftmaxBackward(benchmark::State& state) {
  bench::TimeBackward(state, {bench::kWide}, 1,
                      [](const Inputs& in) { return Softmax(in[0]); });
}
BENCHMARK(BM_SoftmaxBackward)->Apply(bench::ByDTypeAndThreads);

}  // namespace
}  // namespace espalier
