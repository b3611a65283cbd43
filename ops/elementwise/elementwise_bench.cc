#include "espalier/autograd/mode.h"
#include "espalier/ops/elementwise/elementwise.h"
#include "espalier/tests/bench/ceilings.h"

namespace espalier {
namespace {

// Out of cache: [4096, 4096].
const Shape kShape = {4096, 4096};

DType DTypeAt(const benchmark::State& state) {
  return state.range(0) == 2 ? kBF16 : kF32;
}

void BM_Add(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(1));
  const auto context = bench::MakeContext(threads);
  const auto make = [&](const Shape& shape, uint64_t seed) {
    return Variable(
        bench::RandomTensor(context->cpu(), shape, DTypeAt(state), seed));
  };
  const NoGrad no_grad;
  const Variable x = make(kShape, 1);
  const Variable b = make(kShape, 2);
  Add(x, b);  // its memory stays with the allocator
  for (auto _ : state) Add(x, b);
  bench::ReportBytes(state, static_cast<double>(3 * x.value().num_bytes()),
                     threads);
}
BENCHMARK(BM_Add)
    ->ArgNames({"bytes", "threads"})
    ->ArgsProduct({{4, 2}, {1, 2}})
    ->UseRealTime();

void BM_Mul(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(1));
  const auto context = bench::MakeContext(threads);
  const auto make = [&](const Shape& shape, uint64_t seed) {
    return Variable(
        bench::RandomTensor(context->cpu(), shape, DTypeAt(state), seed));
  };
  const NoGrad no_grad;
  const Variable x = make(kShape, 1);
  const Variable b = make(kShape, 2);
  Mul(x, b);  // its memory stays with the allocator
  for (auto _ : state) Mul(x, b);
  bench::ReportBytes(state, static_cast<double>(3 * x.value().num_bytes()),
                     threads);
}
BENCHMARK(BM_Mul)
    ->ArgNames({"bytes", "threads"})
    ->ArgsProduct({{4, 2}, {1, 2}})
    ->UseRealTime();

void BM_Scale(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(1));
  const auto context = bench::MakeContext(threads);
  const auto make = [&](const Shape& shape, uint64_t seed) {
    return Variable(
        bench::RandomTensor(context->cpu(), shape, DTypeAt(state), seed));
  };
  const NoGrad no_grad;
  const Variable x = make(kShape, 1);
  Scale(x, 0.5);  // its memory stays with the allocator
  for (auto _ : state) Scale(x, 0.5);
  bench::ReportBytes(state, static_cast<double>(2 * x.value().num_bytes()),
                     threads);
}
BENCHMARK(BM_Scale)
    ->ArgNames({"bytes", "threads"})
    ->ArgsProduct({{4, 2}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace espalier
