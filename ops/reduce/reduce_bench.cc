#include <vector>

#include "espalier/ops/reduce/reduce.h"
#include "espalier/tests/bench/op_bench.h"

namespace espalier {
namespace {

using Inputs = std::vector<Variable>;

void BM_Sum(benchmark::State& state) {
  bench::TimeForward(
      state, {bench::kWide}, [](const Inputs& in) { return Sum(in[0]); },
      bench::Peak::kRead);
}
BENCHMARK(BM_Sum)->Apply(bench::ByDTypeAndThreads);

}  // namespace
}  // namespace espalier
