#include <memory>
#include <vector>

#include "espalier/ops/short_conv/short_conv.h"
#include "espalier/tests/bench/op_bench.h"

namespace espalier {
namespace {

using Inputs = std::vector<Variable>;

// Eight documents of 1,024 tokens, the width of kimi_linear.
const Shape kTokens = {8192, 4096};
const Shape kWeight = {4096, 1, 4};

Variable Conv(const Inputs& in) {
  ShortConvOptions options;
  options.cu_seqlens = std::make_shared<const std::vector<int32_t>>(
      std::vector<int32_t>{0, 1024, 2048, 3072, 4096, 5120, 6144, 7168, 8192});
  return ShortConv(in[0], in[1], Variable(), options).y;
}

void BM_ShortConv(benchmark::State& state) {
  bench::TimeForward(state, {kTokens, kWeight}, Conv);
}
BENCHMARK(BM_ShortConv)->Apply(bench::ByDTypeAndThreads);

void BM_ShortConvBackward(benchmark::State& state) {
  bench::TimeBackward(state, {kTokens, kWeight}, 1, Conv);
}
BENCHMARK(BM_ShortConvBackward)->Apply(bench::ByDTypeAndThreads);

}  // namespace
}  // namespace espalier
