#include <vector>

#include "espalier/autograd/mode.h"
#include "espalier/ops/rope/rope.h"
#include "espalier/tests/bench/ceilings.h"

namespace espalier {
namespace {

// 4096 tokens, 32 heads of 128.
void BM_Rope(benchmark::State& state) {
  const DType dtype = state.range(0) == 2 ? kBF16 : kF32;
  const int threads = static_cast<int>(state.range(2));
  const auto context = bench::MakeContext(threads);
  const NoGrad no_grad;
  const Variable x(
      bench::RandomTensor(context->cpu(), {4096, 32, 128}, dtype, 1));
  std::vector<int32_t> positions(4096);
  for (size_t t = 0; t < positions.size(); ++t) {
    positions[t] = static_cast<int32_t>(t);
  }
  RopeOptions options;
  options.rotary_dim = 128;
  options.layout =
      state.range(1) == 0 ? RopeLayout::kHalfSplit : RopeLayout::kInterleaved;
  const RopeTable table = MakeRopeTable(
      Tensor::FromHost<int32_t>(context->cpu(), {4096}, positions), options,
      kF32);
  Rope(x, table);  // its memory stays with the allocator
  for (auto _ : state) Rope(x, table);
  bench::ReportBytes(state, static_cast<double>(2 * x.value().num_bytes()),
                     threads);
}
BENCHMARK(BM_Rope)
    ->ArgNames({"bytes", "interleaved", "threads"})
    ->ArgsProduct({{4, 2}, {0, 1}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace espalier
