#include <vector>

#include "espalier/ops/cast/cast.h"
#include "espalier/tests/bench/op_bench.h"

namespace espalier {
namespace {

using Inputs = std::vector<Variable>;

void BM_Cast(benchmark::State& state) {
  bench::TimeForward(state, {bench::kWide}, [](const Inputs& in) {
    return Cast(in[0], in[0].value().dtype() == kF32 ? kBF16 : kF32);
  });
}
BENCHMARK(BM_Cast)->Apply(bench::ByDTypeAndThreads);

}  // namespace
}  // namespace espalier
