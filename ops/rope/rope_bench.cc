#include <cstdint>
#include <vector>

#include "espalier/autograd/backward.h"
#include "espalier/autograd/mode.h"
#include "espalier/ops/rope/rope.h"
#include "espalier/tests/bench/ceilings.h"

namespace espalier {
namespace {

// 4096 tokens, 32 heads of 128. The arguments are bytes, interleaved, threads.
constexpr int64_t kTokens = 4096;

DType DTypeAt(const benchmark::State& state) {
  return state.range(0) == 2 ? kBF16 : kF32;
}

Tensor Heads(Context& context, DType dtype, uint64_t seed) {
  return bench::RandomTensor(context.cpu(), {kTokens, 32, 128}, dtype, seed);
}

RopeTable TableFor(Context& context, const benchmark::State& state) {
  std::vector<int32_t> positions(kTokens);
  for (size_t t = 0; t < positions.size(); ++t) {
    positions[t] = static_cast<int32_t>(t);
  }
  RopeOptions options;
  options.rotary_dim = 128;
  options.layout =
      state.range(1) == 0 ? RopeLayout::kHalfSplit : RopeLayout::kInterleaved;
  return MakeRopeTable(
      Tensor::FromHost<int32_t>(context.cpu(), {kTokens}, positions), options,
      kF32);
}

void ByLayout(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"bytes", "interleaved", "threads"})
      ->ArgsProduct({{4, 2}, {0, 1}, {1, 2}})
      ->UseRealTime();
}

void BM_Rope(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(2));
  const auto context = bench::MakeContext(threads);
  const NoGrad no_grad;
  const Variable x(Heads(*context, DTypeAt(state), 1));
  const RopeTable table = TableFor(*context, state);
  Rope(x, table);  // its memory stays with the allocator
  for ([[maybe_unused]] auto _ : state) Rope(x, table);
  bench::ReportBytes(state, static_cast<double>(2 * x.value().num_bytes()),
                     threads);
}
BENCHMARK(BM_Rope)->Apply(ByLayout);

void BM_RopeBackward(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(2));
  const auto context = bench::MakeContext(threads);
  Variable x(Heads(*context, DTypeAt(state), 1), /*needs_grad=*/true);
  const Tensor dy = Heads(*context, DTypeAt(state), 2);
  const RopeTable table = TableFor(*context, state);
  autograd::Backward(Rope(x, table), dy);  // its memory stays
  for ([[maybe_unused]] auto _ : state) {
    state.PauseTiming();
    x.ClearGrad();
    const Variable y = Rope(x, table);
    state.ResumeTiming();
    autograd::Backward(y, dy);
  }
  bench::ReportBytes(state, static_cast<double>(2 * dy.num_bytes()), threads);
}
BENCHMARK(BM_RopeBackward)->Apply(ByLayout);

}  // namespace
}  // namespace espalier
