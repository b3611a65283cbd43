#include "espalier/autograd/mode.h"
#include "espalier/ops/layer_norm/layer_norm.h"
#include "espalier/tests/bench/ceilings.h"

namespace espalier {
namespace {

// Out of cache: [4096, 4096].
const Shape kShape = {4096, 4096};

DType DTypeAt(const benchmark::State& state) {
  return state.range(0) == 2 ? kBF16 : kF32;
}

void BM_LayerNorm(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(1));
  const auto context = bench::MakeContext(threads);
  const auto make = [&](const Shape& shape, uint64_t seed) {
    return Variable(
        bench::RandomTensor(context->cpu(), shape, DTypeAt(state), seed));
  };
  const NoGrad no_grad;
  const Variable x = make(kShape, 1);
  const Variable weight = make({4096}, 2);
  const Variable bias = make({4096}, 3);
  LayerNorm(x, weight, bias, 1e-5);  // its memory stays with the allocator
  for (auto _ : state) LayerNorm(x, weight, bias, 1e-5);
  bench::ReportBytes(state, static_cast<double>(2 * x.value().num_bytes()),
                     threads);
}
BENCHMARK(BM_LayerNorm)
    ->ArgNames({"bytes", "threads"})
    ->ArgsProduct({{4, 2}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace espalier
