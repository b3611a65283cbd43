#include "espalier/autograd/mode.h"
#include "espalier/ops/cast/cast.h"
#include "espalier/tests/bench/ceilings.h"

namespace espalier {
namespace {

// Out of cache: [4096, 4096].
const Shape kShape = {4096, 4096};

DType DTypeAt(const benchmark::State& state) {
  return state.range(0) == 2 ? kBF16 : kF32;
}

void BM_Cast(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(1));
  const auto context = bench::MakeContext(threads);
  const auto make = [&](const Shape& shape, uint64_t seed) {
    return Variable(
        bench::RandomTensor(context->cpu(), shape, DTypeAt(state), seed));
  };
  const NoGrad no_grad;
  const Variable x = make(kShape, 1);
  const DType to = DTypeAt(state) == kF32 ? kBF16 : kF32;
  Cast(x, to);  // its memory stays with the allocator
  for (auto _ : state) Cast(x, to);
  bench::ReportBytes(state, static_cast<double>(6 * x.value().num_elements()),
                     threads);
}
BENCHMARK(BM_Cast)
    ->ArgNames({"bytes", "threads"})
    ->ArgsProduct({{4, 2}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace espalier
