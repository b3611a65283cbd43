#include "espalier/ops/dropout/dropout.h"
#include "espalier/tests/bench/op_bench.h"

namespace espalier {
namespace {

void BM_Dropout(benchmark::State& state) {
  autograd::RngStream stream(Rng{1, 2});
  bench::TimeForward(state, {bench::kWide}, [&](const auto& in) {
    return Dropout(in[0], 0.1, stream);
  });
}
BENCHMARK(BM_Dropout)->Apply(bench::ByDTypeAndThreads);

// The mask is drawn again; x is not read.
void BM_DropoutBackward(benchmark::State& state) {
  autograd::RngStream stream(Rng{1, 2});
  bench::TimeBackward(
      state, {bench::kWide}, 1,
      [&](const auto& in) { return Dropout(in[0], 0.1, stream); },
      bench::Reads::kCotangent);
}
BENCHMARK(BM_DropoutBackward)->Apply(bench::ByDTypeAndThreads);

}  // namespace
}  // namespace espalier
